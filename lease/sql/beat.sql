-- One beat (P-7): presence, renewal of the named buckets, and who lives and
-- owns what, in one round trip. Locked rows are skipped, so nobody's lock makes
-- a beat wait (P-8): a skipped row is not renewed, and not lost. Whether a lease
-- has expired does not matter to its owner (S-24). A worker that is marked gone
-- renews only with the beat that takes the mark away, so that nobody can claim by
-- the mark what was renewed (P-14). The arrays were read at the same moment as
-- the rest but not locked; what is the worker's own is only what the renewal
-- returned.
with present as (
    select w.subscription, w.worker
    from suisha.workers w
    where w.subscription = @subscription::text and w.worker = @worker::uuid
    for no key update skip locked
), me as (
    update suisha.workers w
    set heartbeat_at = clock_timestamp(),
        expires_at = clock_timestamp() + @ttl::bigint * interval '1 millisecond',
        gone_at = null,
        session = @lock::bigint <> 0,
        lock = nullif(@lock::bigint, 0),
        weight = @weight::int,
        draining = @leaving::boolean,
        giving = @giving::int[]
    from present p
    where w.subscription = p.subscription and w.worker = p.worker
    returning w.worker
), mine as (
    select s.bucket
    from keiro.keiro_subscription_shards s
    where s.subscription_name = @subscription::text
      and s.bucket = any(@renew::int[])
      and s.owner_worker_id = @worker::uuid
      and s.shard_count = @shards::int
      and (
          exists (select from me)
          or not exists (
              select from suisha.workers w
              where w.subscription = @subscription::text and w.worker = @worker::uuid and w.gone_at is not null
          )
      )
    for no key update of s skip locked
), renewed as (
    update keiro.keiro_subscription_shards s
    set lease_expires_at = clock_timestamp() + @ttl::bigint * interval '1 millisecond',
        heartbeat_at = clock_timestamp(),
        updated_at = clock_timestamp()
    from mine m
    where s.subscription_name = @subscription::text
      and s.bucket = m.bucket
      and s.owner_worker_id = @worker::uuid
      and s.shard_count = @shards::int
    returning s.bucket
), seen as (
    select s.bucket, s.shard_count, s.owner_worker_id,
        case
            when s.lease_expires_at is null then 0
            when not isfinite(s.lease_expires_at) then 9223372036854775807
            else (extract(epoch from s.lease_expires_at) * 1000000)::bigint
        end as expiry,
        case
            when s.lease_expires_at is null then 0
            when s.lease_expires_at = 'infinity' then 9223372036854775
            when s.lease_expires_at = '-infinity' then -1
            else (extract(epoch from s.lease_expires_at - clock_timestamp()) * 1000000)::bigint
        end as left_us
    from keiro.keiro_subscription_shards s
    where s.subscription_name = @subscription::text
)
select
    exists (
        select from suisha.workers w
        where w.subscription = @subscription::text and w.worker = @worker::uuid
    ) or exists (select from me) as joined,
    array(select r.bucket from renewed r order by r.bucket) as renewed,
    (
        select coalesce(jsonb_agg(jsonb_build_object(
            'id', w.worker,
            'weight', w.weight,
            'leaving', w.draining,
            'lock', coalesce(w.lock, 0)::text,
            'giving', w.giving,
            'gone', w.gone_at is not null,
            'left', (extract(epoch from w.expires_at - clock_timestamp()) * 1000000)::bigint,
            'age', (extract(epoch from clock_timestamp() - w.heartbeat_at) * 1000000)::bigint
        ) order by w.worker), '[]')::text
        from suisha.workers w
        where w.subscription = @subscription::text
    ) as workers,
    array(select n.bucket from seen n where n.shard_count = @shards::int order by n.bucket) as buckets,
    array(
        select coalesce(n.owner_worker_id, '00000000-0000-0000-0000-000000000000'::uuid)
        from seen n where n.shard_count = @shards::int order by n.bucket
    ) as owners,
    array(select n.expiry from seen n where n.shard_count = @shards::int order by n.bucket) as expiries,
    array(select n.left_us from seen n where n.shard_count = @shards::int order by n.bucket) as lefts,
    array(
        select distinct n.shard_count from seen n where n.shard_count <> @shards::int order by n.shard_count
    ) as foreign_counts
