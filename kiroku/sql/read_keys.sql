-- Keys of the log from position $1 on, at most $2. The limit pins the plan to an
-- ordered scan of one index; that the bounds are pairs does so, too, where the server
-- has no statistics yet: it would sort the rest of the log for each page.
select stream_version, original_stream_id, original_stream_version, event_id
from kiroku.stream_events
where (stream_id, stream_version) >= (0, $1) and (stream_id, stream_version) <= (0, 9223372036854775807)
order by stream_id, stream_version
limit $2;
