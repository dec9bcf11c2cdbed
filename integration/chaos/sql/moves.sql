-- Planned moves of buckets that had something to do, in milliseconds: from the
-- release to the next owner's first call; of that to its claim, and from there;
-- and from the end of the last call before, whoever's it was, to that first call.
-- Last, whether the next owner's process has just started.
select
    extract(epoch from f.began - r.at)::float8 * 1000,
    extract(epoch from next.at - r.at)::float8 * 1000,
    extract(epoch from f.began - next.at)::float8 * 1000,
    extract(epoch from f.began - coalesce(prior.at, r.at))::float8 * 1000,
    next.at < (select min(c.at) from chaos.claims c where c.worker = next.to_worker) + interval '2 seconds'
from chaos.owners r
cross join lateral (
    select o.id, o.to_worker, o.at from chaos.owners o where o.bucket = r.bucket and o.id > r.id order by o.id limit 1
) as next
left join lateral (
    select o.at from chaos.owners o where o.bucket = r.bucket and o.id > next.id order by o.id limit 1
) as after on true
cross join lateral (
    select c.began, c.stream, c.version from chaos.calls c
    where c.bucket = r.bucket and c.began >= next.at and c.worker_id = next.to_worker
        and (after.at is null or c.began <= after.at) order by c.began limit 1
) as f
left join lateral (
    select c.at from chaos.calls c
    where c.bucket = r.bucket and c.began <= r.at order by c.began desc limit 1
) as prior on true
join chaos.events e on e.stream = f.stream and e.version = f.version
where r.from_worker is not null and r.to_worker is null and next.to_worker <> r.from_worker
    and e.created_at <= r.at and r.at between $1 and $2
