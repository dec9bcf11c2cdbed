-- Gives a bucket back with its final checkpoint, in one transaction, and tells
-- the other workers (P-19). The row is updated only while it names this worker;
-- without it nothing is written. $5 is null when nothing was read. Returns
-- whether the bucket was released.
with released as (
    update keiro.keiro_subscription_shards s
    set owner_worker_id = null, lease_expires_at = null, updated_at = clock_timestamp()
    where s.subscription_name = $1 and s.bucket = $2
        and s.owner_worker_id = $3 and s.shard_count = $4
    returning s.subscription_name, s.bucket
), checkpoint as (
    insert into kiroku.subscriptions as c
        (subscription_name, consumer_group_member, last_seen, updated_at)
    select r.subscription_name, r.bucket, $5::bigint, clock_timestamp()
    from released r
    where $5::bigint is not null
    on conflict (subscription_name, consumer_group_member) do update
        set last_seen = greatest(c.last_seen, excluded.last_seen), updated_at = excluded.updated_at
), told as (
    select pg_notify('keiro_shard_rebalance', r.subscription_name) from released r
)
select exists (select 1 from released), (select count(*) from told)
