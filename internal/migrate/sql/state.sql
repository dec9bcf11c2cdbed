-- What exists of the ledger.
select
    exists (select from pg_namespace where nspname = 'suisha') as schema,
    to_regclass('suisha.migrations') is not null as ledger
