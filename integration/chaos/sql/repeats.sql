-- Calls for events that had been called before, with who had them last.
with numbered as (
    select c.worker, c.began, c.attempt, c.worker_id,
        lag(c.worker) over w as before, lag(c.at) over w as before_at,
        row_number() over w as n
    from chaos.calls c
    window w as (partition by c.stream, c.version order by c.began, c.id)
)
select n.worker, n.before, n.began, n.before_at, n.attempt
from numbered n
where n.n > 1
order by n.began
