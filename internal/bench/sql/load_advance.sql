-- The head moves by $1 events.
update kiroku.streams set stream_version = stream_version + $1 where stream_id = 0
