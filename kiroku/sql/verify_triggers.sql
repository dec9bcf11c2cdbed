-- The triggers of schema kiroku, with what they run.
select
    t.relname as table,
    g.tgname as trigger,
    g.tgtype,
    g.tgenabled::text in ('O', 'A') as enabled,
    fn.nspname || '.' || f.proname as function
from pg_catalog.pg_namespace n
join pg_catalog.pg_class t on t.relnamespace = n.oid
join pg_catalog.pg_trigger g on g.tgrelid = t.oid
join pg_catalog.pg_proc f on f.oid = g.tgfoid
join pg_catalog.pg_namespace fn on fn.oid = f.pronamespace
where n.nspname = 'kiroku' and not g.tgisinternal;
