-- What kiroku's reader of a consumer group does, in our words: at most $3 events
-- of category $1 after position $2, of the streams of member $4 of $5. The limit
-- holds for each stream, then for the page.
select
    e.event_id,
    e.event_type,
    k.original_stream_id,
    k.original_stream_version,
    k.stream_version,
    e.data,
    e.metadata,
    e.created_at
from kiroku.streams s
cross join lateral (
    select se.event_id, se.original_stream_id, se.original_stream_version, se.stream_version
    from kiroku.stream_events se
    where se.stream_id = 0 and se.original_stream_id = s.stream_id and se.stream_version > $2
    order by se.stream_version
    limit $3
) k
join kiroku.events e on e.event_id = k.event_id
where s.category = $1 and ((hashtextextended(s.stream_id::text, 0) % $5::int8) + $5::int8) % $5::int8 = $4
order by k.stream_version
limit $3
