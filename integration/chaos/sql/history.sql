-- What happened to the leases of each bucket and under them: changes of owner, and
-- writes of checkpoints and dead letters. Each took effect between the start of its
-- transaction and its trigger, which ran while the lease row was locked. (A write of the
-- same owner between the trigger of a release and its commit would look impossible, and
-- is harmless: P-24. None was seen.)
select h.bucket, h.write, h.writer, h.from_worker, h.from_name, h.free, h.to_worker, h.to_name, h.began, h.at
from (
    select o.bucket, false as write, o.writer, coalesce(o.from_worker::text, '') as from_worker, coalesce(o.from_name, '') as from_name,
        o.from_marked or coalesce(o.from_expires < o.at, false) as free,
        coalesce(o.to_worker::text, '') as to_worker, coalesce(o.to_name, '') as to_name, o.began, o.at
    from chaos.owners o
    union all
    select c.bucket, true, c.writer, '', '', false, '', '', c.began, c.at from chaos.checkpoints c
    union all
    select l.bucket, true, l.writer, '', '', false, '', '', l.began, l.at from chaos.letters l
) as h
order by h.bucket, h.began, h.at
