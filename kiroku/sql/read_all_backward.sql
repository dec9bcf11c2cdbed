-- Events before position $1, at most $2, newest first.
with keys as materialized (
    select
        event_id,
        original_stream_id,
        original_stream_version,
        stream_version as position,
        stream_version as place
    from kiroku.stream_events
    where stream_id = 0 and stream_version < $1
    order by stream_version desc
    limit $2
)
select
    e.event_id,
    e.event_type,
    k.original_stream_id,
    k.original_stream_version,
    k.position,
    e.data,
    e.metadata,
    e.causation_id,
    e.correlation_id,
    e.created_at
from keys k
join kiroku.events e on e.event_id = k.event_id
order by k.place desc;
