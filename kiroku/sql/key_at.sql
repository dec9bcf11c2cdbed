-- The key at position $1.
select original_stream_id, original_stream_version, event_id
from kiroku.stream_events
where stream_id = 0 and stream_version = $1;
