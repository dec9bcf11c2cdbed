-- Events that a checkpoint of their bucket covered before any call for them had
-- ended; $1 buckets.
with placed as (
    select e.*, ((e.hash % $1::bigint) + $1::bigint) % $1::bigint as bucket
    from (select v.*, hashtextextended(v.stream_id::text, 0) as hash from chaos.events v) as e
)
select format('%s@%s at %s: bucket %s covered it at %s by %s', p.stream, p.version, p.position, p.bucket, k.at, k.writer)
from placed p
cross join lateral (
    select c.at, c.writer from chaos.checkpoints c
    where c.bucket = p.bucket and c.after >= p.position order by c.after, c.at limit 1
) as k
where not exists (
        select from chaos.calls c where c.stream = p.stream and c.version = p.version and c.at <= k.at
    )
    and not exists (select from kiroku.dead_letters d where d.global_position = p.position)
order by p.position
