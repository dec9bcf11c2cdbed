-- The indexes of schema kiroku with their key columns.
select
    t.relname as table,
    i.relname as index,
    x.indisunique,
    x.indisvalid and x.indisready as usable,
    array(
        select pg_get_indexdef(x.indexrelid, k, true)
        from generate_series(1, x.indnkeyatts) k
    ) as columns,
    coalesce(pg_get_expr(x.indpred, x.indrelid), '') as predicate
from pg_catalog.pg_namespace n
join pg_catalog.pg_class t on t.relnamespace = n.oid
join pg_catalog.pg_index x on x.indrelid = t.oid
join pg_catalog.pg_class i on i.oid = x.indexrelid
where n.nspname = 'kiroku';
