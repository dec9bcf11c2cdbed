-- Frees the named buckets that are still the worker's, and tells the others
-- (S-25). A locked row is skipped, as by a beat: nobody's lock breaks the
-- session. heartbeat_at stays, as keiro leaves it.
with mine as (
    select s.bucket
    from keiro.keiro_subscription_shards s
    where s.subscription_name = @subscription::text
      and s.bucket = any(@buckets::int[])
      and s.owner_worker_id = @worker::uuid
      and s.shard_count = @shards::int
    for no key update skip locked
), freed as (
    update keiro.keiro_subscription_shards s
    set owner_worker_id = null,
        lease_expires_at = null,
        updated_at = clock_timestamp()
    from mine m
    where s.subscription_name = @subscription::text
      and s.bucket = m.bucket
      and s.owner_worker_id = @worker::uuid
    returning s.bucket
), logged as (
    insert into suisha.ownership_log (subscription, bucket, from_worker, reason, at)
    select @subscription::text, f.bucket, @worker::uuid, 'unused', clock_timestamp()
    from freed f
    order by f.bucket
), told as (
    select pg_notify('keiro_shard_rebalance', @subscription::text)
    where exists (select from freed)
)
select f.bucket from freed f left join told on true order by f.bucket
