-- Keys of the streams of categories $1 behind position $2, about $3, unless there are
-- more than $4 such streams. Each stream is asked for so many by itself, by the index
-- over its part of the log; whoever has more comes back with exactly that number. The
-- bounds are pairs so that no other index will do: the planner would rather read the
-- log in order and throw nearly all of it away.
-- Part 0 says how many streams there are, how many were asked of each, and how far the
-- log goes; part 1 is what stands at $2 and at the end, whoever's it is.
with mine as materialized (
    select s.stream_id
    from kiroku.streams s
    where s.category = any ($1::text[])
    limit $4::bigint + 1
), fact as materialized (
    select
        (select count(*) from mine) as streams,
        2 * $3::bigint / greatest((select count(*) from mine), 1) + 5 as each,
        (select s.stream_version from kiroku.streams s where s.stream_id = 0) as head
)
select 0::smallint as part, f.head as position, f.streams as stream_id, f.each as version, null::uuid as event_id
from fact f
union all
select 1::smallint, e.stream_version, e.original_stream_id, e.original_stream_version, e.event_id
from fact f
cross join lateral unnest(array[$2::bigint, f.head]) as p (position)
join kiroku.stream_events e on e.stream_id = 0 and e.stream_version = p.position
union all
select 2::smallint, k.stream_version, k.original_stream_id, k.original_stream_version, k.event_id
from mine m
cross join lateral (
    select e.stream_version, e.original_stream_id, e.original_stream_version, e.event_id
    from kiroku.stream_events e
    where e.stream_id = 0
        and (e.original_stream_id, e.stream_version) > (m.stream_id, $2::bigint)
        and (e.original_stream_id, e.stream_version) <= (m.stream_id, 9223372036854775807)
    order by e.original_stream_id, e.stream_version
    limit (select f.each from fact f)
) k
where (select f.streams from fact f) <= $4::bigint
