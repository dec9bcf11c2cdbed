-- How many workers own buckets of subscription $1, how many buckets, and how few
-- and how many of them one has.
select count(*), coalesce(sum(n), 0)::int8, coalesce(min(n), 0), coalesce(max(n), 0)
from (
    select count(*) as n
    from keiro.keiro_subscription_shards
    where subscription_name = $1 and owner_worker_id is not null
    group by owner_worker_id
) owners
