-- What exists of the schema keiro.
select
    exists (select from pg_namespace where nspname = 'keiro') as present,
    to_regclass('keiro.keiro_subscription_shards') is not null as shards,
    exists (
        select from pg_class c
        join pg_namespace n on n.oid = c.relnamespace
        where n.nspname = 'keiro'
    ) as others
