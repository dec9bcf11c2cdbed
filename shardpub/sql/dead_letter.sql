-- Records a dead letter and moves the checkpoint to the low-water mark after it,
-- with what is settled above that (P-39; null: leave it, empty: nothing is), all
-- behind the fence (P-24, P-37): without the lease row nothing is written.
-- A letter that is there already keeps its first reason. Returns whether the
-- fence held.
with fence as (
    select s.subscription_name, s.bucket
    from keiro.keiro_subscription_shards s
    where s.subscription_name = $1 and s.bucket = $2
        and s.owner_worker_id = $3 and s.shard_count = $4
    for key share
), letter as (
    insert into kiroku.dead_letters
        (subscription_name, consumer_group_member, global_position, event_id, reason, reason_summary, attempt_count)
    select f.subscription_name, f.bucket, $5::bigint, $6::uuid, $7::jsonb, $8::text, $9::integer
    from fence f
    on conflict (subscription_name, consumer_group_member, global_position, event_id) do nothing
), checkpoint as (
    insert into kiroku.subscriptions as c
        (subscription_name, consumer_group_member, last_seen, updated_at)
    select f.subscription_name, f.bucket, $10::bigint, clock_timestamp()
    from fence f
    on conflict (subscription_name, consumer_group_member) do update
        set last_seen = greatest(c.last_seen, excluded.last_seen), updated_at = excluded.updated_at
    returning c.subscription_name, c.consumer_group_member, c.last_seen, c.updated_at
), kept as (
    insert into suisha.acks as a (subscription, bucket, checkpoint, checkpoint_at, settled)
    select v.subscription_name, v.consumer_group_member, v.last_seen, v.updated_at, $11::bytea
    from checkpoint v
    where $11::bytea <> ''
    on conflict (subscription, bucket) do update
        set checkpoint = excluded.checkpoint, checkpoint_at = excluded.checkpoint_at, settled = excluded.settled
), dropped as (
    delete from suisha.acks a
    using checkpoint v
    where a.subscription = v.subscription_name and a.bucket = v.consumer_group_member and $11::bytea = ''
)
select exists (select 1 from fence)
