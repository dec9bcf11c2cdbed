-- Events after position $1, at most $2.
select
    e.event_id,
    e.event_type,
    se.original_stream_id,
    se.original_stream_version,
    se.stream_version,
    e.data,
    e.metadata,
    e.created_at
from kiroku.stream_events se
join kiroku.events e on e.event_id = se.event_id
where se.stream_id = 0 and se.stream_version > $1
order by se.stream_version
limit $2
