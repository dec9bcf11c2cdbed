-- Calls that began when their worker did not own the bucket: a process that was
-- frozen between the last look at its lease and the handler.
select format('%s@%s: call %s of %s in bucket %s began %s', c.stream, c.version, c.id, c.worker, c.bucket, c.began)
from chaos.calls c
where c.worker_id is distinct from (
    select o.to_worker from chaos.owners o where o.bucket = c.bucket and o.at <= c.began order by o.at desc limit 1
)
order by c.began
