-- Gives buckets back with their final checkpoints and what is settled above them
-- (P-39; null: leave it, empty: nothing is), each in one step, and tells the other
-- workers (P-19). A lease row goes only while it names its worker; a position of -1
-- says that nothing was read. A row that another has locked, the lease's, the
-- checkpoint's or the settled set's, is skipped: its bucket waits for the next try
-- and holds up no other. One row comes back per bucket: released, or else whether
-- the lease row still names the worker.
with want as (
    select w.subscription, w.bucket, w.worker, w.shards, w.position, w.settled, w.reason
    from unnest($1::text[], $2::integer[], $3::text[]::uuid[], $4::integer[], $5::bigint[], $6::bytea[], $7::text[])
        as w (subscription, bucket, worker, shards, position, settled, reason)
), owned as (
    select w.subscription, w.bucket, w.position, w.settled
    from want w
    join keiro.keiro_subscription_shards s
        on s.subscription_name = w.subscription and s.bucket = w.bucket
    where s.owner_worker_id = w.worker and s.shard_count = w.shards
    order by w.subscription, w.bucket
    for no key update of s skip locked
), open as (
    select a.subscription, a.bucket
    from owned o
    join suisha.acks a on a.subscription = o.subscription and a.bucket = o.bucket
    where o.settled is not null
    order by a.subscription, a.bucket
    for update of a skip locked
), mine as (
    select o.subscription, o.bucket, o.position
    from owned o
    where o.settled is null
        or exists (select 1 from open u where u.subscription = o.subscription and u.bucket = o.bucket)
        or not exists (select 1 from suisha.acks a where a.subscription = o.subscription and a.bucket = o.bucket)
), free as (
    select m.subscription, m.bucket, m.position
    from mine m
    join kiroku.subscriptions c
        on c.subscription_name = m.subscription and c.consumer_group_member = m.bucket
    where m.position >= 0
    order by m.subscription, m.bucket
    for no key update of c skip locked
), absent as (
    select m.subscription, m.bucket, m.position
    from mine m
    where m.position >= 0 and not exists (
        select 1 from kiroku.subscriptions o
        where o.subscription_name = m.subscription and o.consumer_group_member = m.bucket
    )
), updated as (
    update kiroku.subscriptions c
    set last_seen = greatest(c.last_seen, f.position), updated_at = clock_timestamp()
    from free f
    where c.subscription_name = f.subscription and c.consumer_group_member = f.bucket
    returning c.subscription_name, c.consumer_group_member, c.last_seen, c.updated_at
), inserted as (
    insert into kiroku.subscriptions as c
        (subscription_name, consumer_group_member, last_seen, updated_at)
    select a.subscription, a.bucket, a.position, clock_timestamp()
    from absent a
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
), released as (
    update keiro.keiro_subscription_shards s
    set owner_worker_id = null, lease_expires_at = null, updated_at = clock_timestamp()
    from (
        select subscription, bucket from free
        union all
        select subscription, bucket from absent
        union all
        select m.subscription, m.bucket from mine m where m.position < 0
    ) as ready
    where s.subscription_name = ready.subscription and s.bucket = ready.bucket
    returning s.subscription_name, s.bucket
), logged as (
    insert into suisha.ownership_log (subscription, bucket, from_worker, reason, at)
    select w.subscription, w.bucket, w.worker, w.reason, clock_timestamp()
    from released r
    join want w on w.subscription = r.subscription_name and w.bucket = r.bucket
    order by w.subscription, w.bucket
), told as (
    select pg_notify('keiro_shard_rebalance', r.subscription_name)
    from (select distinct subscription_name from released) r
)
select
    w.subscription,
    w.bucket,
    w.worker,
    exists (
        select 1 from released r
        where r.subscription_name = w.subscription and r.bucket = w.bucket
    ),
    exists (
        select 1 from keiro.keiro_subscription_shards s
        where s.subscription_name = w.subscription and s.bucket = w.bucket
            and s.owner_worker_id = w.worker and s.shard_count = w.shards
    ),
    (select count(*) from told)
from want w
