-- Calls that began before any call for the version before had ended.
select format('%s@%s at %s: call %s of %s in bucket %s began %s, version %s was first handled %s', c.stream, c.version, c.position,
    c.id, c.worker, c.bucket, c.began, c.version - 1,
    (select min(p.at) from chaos.calls p where p.stream = c.stream and p.version = c.version - 1))
from chaos.calls c
where c.version > 1
    and not exists (
        select from chaos.calls p where p.stream = c.stream and p.version = c.version - 1 and p.at <= c.began
    )
    and not exists (
        select from chaos.events e join kiroku.dead_letters d on d.global_position = e.position
        where e.stream = c.stream and e.version = c.version - 1
    )
order by c.began
