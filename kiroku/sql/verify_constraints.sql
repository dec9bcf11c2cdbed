-- The check and foreign key constraints of schema kiroku.
select
    t.relname as table,
    k.conname as name,
    pg_get_constraintdef(k.oid) as definition
from pg_catalog.pg_namespace n
join pg_catalog.pg_class t on t.relnamespace = n.oid
join pg_catalog.pg_constraint k on k.conrelid = t.oid
where n.nspname = 'kiroku' and k.contype in ('c', 'f');
