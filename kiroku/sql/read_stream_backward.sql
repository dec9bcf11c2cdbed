-- Events of stream $1 before version $2, at most $3, newest first.
with keys as materialized (
    select
        se.event_id,
        se.original_stream_id,
        se.original_stream_version,
        0::int8 as position,
        se.stream_version as place
    from kiroku.streams s
    join kiroku.stream_events se on se.stream_id = s.stream_id
    where
        s.stream_name = $1
        and s.deleted_at is null
        and se.stream_version >= s.truncate_before
        and se.stream_version < $2
    order by se.stream_version desc
    limit $3
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
