-- The keys at the positions $1, in order. The planner thinks little of arrays, so
-- each is asked for by itself: one probe of the primary key.
select k.stream_version, k.original_stream_id, k.original_stream_version, k.event_id
from unnest($1::bigint[]) as p (position)
cross join lateral (
    select e.stream_version, e.original_stream_id, e.original_stream_version, e.event_id
    from kiroku.stream_events e
    where e.stream_id = 0 and e.stream_version = p.position
) k
order by k.stream_version
