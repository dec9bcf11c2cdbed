-- What there is: the server's version, the schema, and the tables by which
-- migration tools leave word. The catalog answers without any privilege.
select
    current_setting('server_version_num')::int as version,
    exists (select from pg_catalog.pg_namespace where nspname = 'kiroku') as schema,
    coalesce(bool_or(n.nspname = 'pgmigrate' and c.relname = 'migrations'), false) as ledger,
    coalesce(bool_or(n.nspname = 'codd' and c.relname = 'sql_migrations'), false) as codd,
    coalesce(bool_or(n.nspname = 'codd_schema' and c.relname = 'sql_migrations'), false) as codd_schema,
    coalesce(bool_or(n.nspname = 'suisha' and c.relname = 'kiroku_install'), false) as marker
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname in ('pgmigrate', 'codd', 'codd_schema', 'suisha');
