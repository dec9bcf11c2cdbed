-- Buckets of killed workers that had something to do: milliseconds from the kill to
-- the first call by another worker, and who owned it meanwhile.
select
    extract(epoch from f.began - k.at)::float8 * 1000,
    format('bucket %s of %s, killed %s, handled by %s at %s; then: %s', b.bucket, k.worker, k.at, f.worker, f.began, (
        select string_agg(format('%s by %s', o.at::time(3), coalesce(o.to_name, 'nobody')), ', ' order by o.id)
        from chaos.owners o where o.bucket = b.bucket and o.at > k.at and o.at < f.began
    ))
from chaos.kills k
join (select distinct o.bucket from chaos.owners o) as b on true
cross join lateral (
    select o.to_worker, o.to_name from chaos.owners o where o.bucket = b.bucket and o.at <= k.at order by o.at desc limit 1
) as held
cross join lateral (
    select c.began, c.stream, c.version, c.worker from chaos.calls c
    where c.bucket = b.bucket and c.began > k.at and c.worker_id <> held.to_worker order by c.began limit 1
) as f
join chaos.events e on e.stream = f.stream and e.version = f.version
where held.to_name = k.worker and e.created_at <= k.at + interval '250 milliseconds' and k.at >= $1
order by 1 desc
