-- All events that there are, and what makes the questions of the checker quick.
create table chaos.events as
select
    s.stream_name as stream,
    e.original_stream_version as version,
    e.stream_version as position,
    v.created_at,
    s.stream_id as stream_id
from kiroku.stream_events e
join kiroku.streams s on s.stream_id = e.original_stream_id
join kiroku.events v on v.event_id = e.event_id
where e.stream_id = 0 and s.category = 'chaos';

create index on chaos.events (position);
create index on chaos.calls (stream, version, at);
create index on chaos.progress (bucket, after, at);
analyze chaos.events, chaos.calls, chaos.progress, chaos.changes, chaos.claims, chaos.names;
