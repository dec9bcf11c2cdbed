-- Keys of the log from position $1 on, at most $2. The limit pins the plan to an
-- ordered scan of one index.
select stream_version, original_stream_id, original_stream_version, event_id
from kiroku.stream_events
where stream_id = 0 and stream_version >= $1
order by stream_version
limit $2;
