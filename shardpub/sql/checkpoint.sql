-- Saves the checkpoints of many buckets at once, and what is settled above them
-- (P-39; null: leave it, empty: nothing is), each behind its fence: the
-- lease row is locked with owner = this worker (P-24). A row that another has
-- locked, the lease's, the checkpoint's or the settled set's, is skipped, so that
-- one blocked bucket holds up no other. One row comes back per bucket: saved, or else whether the
-- lease row still names this worker.
with want as (
    select w.subscription, w.bucket, w.worker, w.shards, w.position, w.settled
    from unnest($1::text[], $2::integer[], $3::text[]::uuid[], $4::integer[], $5::bigint[], $6::bytea[])
        as w (subscription, bucket, worker, shards, position, settled)
), fence as (
    select w.subscription, w.bucket, w.position, w.settled
    from want w
    join keiro.keiro_subscription_shards s
        on s.subscription_name = w.subscription and s.bucket = w.bucket
    where s.owner_worker_id = w.worker and s.shard_count = w.shards
    order by w.subscription, w.bucket
    for key share of s skip locked
), open as (
    select a.subscription, a.bucket
    from fence f
    join suisha.acks a on a.subscription = f.subscription and a.bucket = f.bucket
    where f.settled is not null
    order by a.subscription, a.bucket
    for update of a skip locked
), ready as (
    select f.subscription, f.bucket, f.position
    from fence f
    where f.settled is null
        or exists (select 1 from open o where o.subscription = f.subscription and o.bucket = f.bucket)
        or not exists (select 1 from suisha.acks a where a.subscription = f.subscription and a.bucket = f.bucket)
), free as (
    select c.subscription_name, c.consumer_group_member, r.position
    from ready r
    join kiroku.subscriptions c
        on c.subscription_name = r.subscription and c.consumer_group_member = r.bucket
    order by c.subscription_name, c.consumer_group_member
    for no key update of c skip locked
), updated as (
    update kiroku.subscriptions c
    set last_seen = greatest(c.last_seen, f.position), updated_at = clock_timestamp()
    from free f
    where c.subscription_name = f.subscription_name and c.consumer_group_member = f.consumer_group_member
    returning c.subscription_name, c.consumer_group_member, c.last_seen, c.updated_at
), inserted as (
    insert into kiroku.subscriptions as c
        (subscription_name, consumer_group_member, last_seen, updated_at)
    select r.subscription, r.bucket, r.position, clock_timestamp()
    from ready r
    where not exists (
        select 1 from kiroku.subscriptions o
        where o.subscription_name = r.subscription and o.consumer_group_member = r.bucket
    )
    on conflict (subscription_name, consumer_group_member) do update
        set last_seen = greatest(c.last_seen, excluded.last_seen), updated_at = excluded.updated_at
    returning c.subscription_name, c.consumer_group_member, c.last_seen, c.updated_at
), saved as (
    select subscription_name, consumer_group_member, last_seen, updated_at from updated
    union all
    select subscription_name, consumer_group_member, last_seen, updated_at from inserted
), kept as (
    insert into suisha.acks as a (subscription, bucket, checkpoint, checkpoint_at, settled)
    select v.subscription_name, v.consumer_group_member, v.last_seen, v.updated_at, w.settled
    from saved v
    join want w on w.subscription = v.subscription_name and w.bucket = v.consumer_group_member
    where w.settled <> ''
    order by v.subscription_name, v.consumer_group_member
    on conflict (subscription, bucket) do update
        set checkpoint = excluded.checkpoint, checkpoint_at = excluded.checkpoint_at, settled = excluded.settled
), dropped as (
    delete from suisha.acks a
    using saved v
    join want w on w.subscription = v.subscription_name and w.bucket = v.consumer_group_member
    where a.subscription = v.subscription_name and a.bucket = v.consumer_group_member and w.settled = ''
)
select
    w.subscription,
    w.bucket,
    w.worker,
    w.position,
    exists (
        select 1 from saved v
        where v.subscription_name = w.subscription and v.consumer_group_member = w.bucket
    ),
    exists (
        select 1 from keiro.keiro_subscription_shards s
        where s.subscription_name = w.subscription and s.bucket = w.bucket
            and s.owner_worker_id = w.worker and s.shard_count = w.shards
    )
from want w
