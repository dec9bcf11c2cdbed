-- Buckets of a subscription of @shards that no live lease covers, each with the
-- microseconds since it was freed or its lease expired, if more than @grace.
with free as (
    select
        s.bucket,
        (extract(epoch from clock_timestamp() - coalesce(s.lease_expires_at, s.updated_at)) * 1000000)::bigint as age
    from keiro.keiro_subscription_shards s
    where
        s.subscription_name = @subscription::text
        and s.shard_count = @shards::integer
        and (s.owner_worker_id is null or s.lease_expires_at < clock_timestamp())
        and isfinite(coalesce(s.lease_expires_at, s.updated_at))
)
select f.bucket, f.age
from free f
where f.age > @grace::bigint
order by f.bucket
