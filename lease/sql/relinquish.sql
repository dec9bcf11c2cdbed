-- Takes every bucket from a worker, and tells the others. Rows are locked in
-- order, so that two operators do not block each other for good.
with locked as (
    select s.bucket
    from keiro.keiro_subscription_shards s
    where s.subscription_name = @subscription::text and s.owner_worker_id = @worker::uuid
    order by s.bucket
    for update
), freed as (
    update keiro.keiro_subscription_shards s
    set owner_worker_id = null,
        lease_expires_at = null,
        updated_at = clock_timestamp()
    from locked l
    where s.subscription_name = @subscription::text and s.bucket = l.bucket
    returning s.bucket
), logged as (
    insert into suisha.ownership_log (subscription, bucket, from_worker, reason, at)
    select @subscription::text, f.bucket, @worker::uuid, 'operator', clock_timestamp()
    from freed f
    order by f.bucket
), told as (
    select pg_notify('keiro_shard_rebalance', @subscription::text)
    where exists (select from freed)
)
select f.bucket from freed f left join told on true order by f.bucket
