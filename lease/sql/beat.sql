-- Beats (P-7), one for each of @beats: presence, renewal of the named buckets, and
-- who lives and owns what, in one round trip. Locked rows are skipped, so nobody's
-- lock makes a beat wait (P-8): a skipped row is not renewed, and not lost. Whether a
-- lease has expired does not matter to its owner (S-24). A worker that is marked gone
-- renews only with the beat that takes the mark away, so that nobody can claim by
-- the mark what was renewed (P-14). The arrays were read at the same moment as
-- the rest but not locked; what is the worker's own is only what the renewal
-- returned.
with asked as materialized (
    select a.*
    from jsonb_to_recordset(@beats::text::jsonb) as a (
        beat int, subscription text, worker uuid, shards int, ttl bigint, weight int,
        lock bigint, leaving boolean, giving int[], renew int[]
    )
), present as (
    select a.beat, w.subscription, w.worker
    from asked a
    join suisha.workers w on w.subscription = a.subscription and w.worker = a.worker
    for no key update of w skip locked
), me as (
    update suisha.workers w
    set heartbeat_at = clock_timestamp(),
        expires_at = clock_timestamp() + a.ttl * interval '1 millisecond',
        gone_at = null,
        session = a.lock <> 0,
        lock = nullif(a.lock, 0),
        weight = a.weight,
        draining = a.leaving,
        giving = a.giving
    from present p
    join asked a on a.beat = p.beat
    where w.subscription = p.subscription and w.worker = p.worker
    returning a.beat
), mine as (
    select a.beat, s.subscription_name, s.bucket
    from asked a
    cross join lateral unnest(a.renew) as r (bucket)
    join keiro.keiro_subscription_shards s
        on s.subscription_name = a.subscription
        and s.bucket = r.bucket
        and s.owner_worker_id = a.worker
        and s.shard_count = a.shards
    -- An array, as a row that has just changed is looked at again and no update can be.
    where a.beat = any(array(select m.beat from me m))
        or not exists (
            select from suisha.workers w
            where w.subscription = a.subscription and w.worker = a.worker and w.gone_at is not null
        )
    for no key update of s skip locked
), renewed as (
    update keiro.keiro_subscription_shards s
    set lease_expires_at = clock_timestamp() + a.ttl * interval '1 millisecond',
        heartbeat_at = clock_timestamp(),
        updated_at = clock_timestamp()
    from mine m
    join asked a on a.beat = m.beat
    where s.subscription_name = m.subscription_name
        and s.bucket = m.bucket
        and s.owner_worker_id = a.worker
        and s.shard_count = a.shards
    returning a.beat, s.bucket
)
select
    a.beat,
    exists (
        select from suisha.workers w
        where w.subscription = a.subscription and w.worker = a.worker
    ) or exists (select from me m where m.beat = a.beat) as joined,
    array(select r.bucket from renewed r where r.beat = a.beat order by r.bucket) as renewed,
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
        where w.subscription = a.subscription
    ) as workers,
    coalesce(seen.buckets, '{}') as buckets,
    coalesce(seen.owners, '{}') as owners,
    coalesce(seen.expiries, '{}') as expiries,
    coalesce(seen.lefts, '{}') as lefts,
    coalesce(seen.foreign_counts, '{}') as foreign_counts
from asked a
cross join lateral (
    select
        array_agg(n.bucket order by n.bucket) filter (where n.own) as buckets,
        array_agg(n.owner order by n.bucket) filter (where n.own) as owners,
        array_agg(n.expiry order by n.bucket) filter (where n.own) as expiries,
        array_agg(n.left_us order by n.bucket) filter (where n.own) as lefts,
        array_agg(distinct n.shard_count) filter (where not n.own) as foreign_counts
    from (
        select
            s.bucket,
            s.shard_count,
            s.shard_count = a.shards as own,
            coalesce(s.owner_worker_id, '00000000-0000-0000-0000-000000000000') as owner,
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
        where s.subscription_name = a.subscription
    ) n
) seen
order by a.beat
