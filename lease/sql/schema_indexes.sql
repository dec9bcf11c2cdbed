-- The column lists of the valid indexes of keiro's table.
select (
    select string_agg(pg_get_indexdef(i.indexrelid, k, true), ', ' order by k)
    from generate_series(1, i.indnkeyatts) as k
)
from pg_index i
where i.indrelid = 'keiro.keiro_subscription_shards'::regclass and i.indisvalid
order by 1
