-- Calls that went back to an earlier version of their stream within one tenure.
with tenures as (
    select c.*, (
        select count(*) from chaos.claims t where t.bucket = c.bucket and t.worker = c.worker_id and t.at <= c.began
    ) as tenure
    from chaos.calls c
), steps as (
    select t.*, lag(t.version) over (partition by t.stream, t.worker_id, t.bucket, t.tenure order by t.began, t.id) as before
    from tenures t
)
select format('%s@%s after @%s: call %s of %s in bucket %s, tenure %s, began %s',
    s.stream, s.version, s.before, s.id, s.worker, s.bucket, s.tenure, s.began)
from steps s
where s.version < s.before
order by s.began
