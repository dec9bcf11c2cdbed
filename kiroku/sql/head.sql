-- The last global position that was given out.
select stream_version
from kiroku.streams
where stream_id = 0;
