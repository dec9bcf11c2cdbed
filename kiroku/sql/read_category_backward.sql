-- Events of category $1 before position $2, at most $3, newest first. The keys
-- are cut to the page before any event is fetched.
with keys as materialized (
    select
        se.event_id,
        se.original_stream_id,
        se.original_stream_version,
        se.stream_version as position,
        se.stream_version as place
    from kiroku.streams s
    cross join lateral (
        select event_id, original_stream_id, original_stream_version, stream_version
        from kiroku.stream_events
        where stream_id = 0 and original_stream_id = s.stream_id and stream_version < $2
        order by stream_version desc
        limit $3
    ) se
    where s.category = $1
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
