-- Buckets that went from one worker to another although the lease had not run out
-- and the owner was not marked gone, were freed by somebody else than the owner,
-- or changed hands unseen.
with steps as (
    select o.*, lag(o.to_worker) over w as last_to, row_number() over w as step
    from chaos.owners o
    window w as (partition by o.bucket order by o.id)
)
select format('bucket %s from %s (%s, until %s, marked %s) to %s (%s) by %s at %s', s.bucket,
    s.from_worker, s.from_name, s.from_expires, s.from_marked, s.to_worker, s.to_name, s.writer, s.at)
from steps s
where (s.from_worker is not null and s.to_worker is not null and not s.from_marked and not coalesce(s.from_expires < s.at, false))
    or (s.from_worker is not null and s.to_worker is null and s.writer is distinct from s.from_name)
    or (s.to_worker is not null and s.writer is distinct from s.to_name)
    or (s.step > 1 and s.last_to is distinct from s.from_worker)
order by s.id
