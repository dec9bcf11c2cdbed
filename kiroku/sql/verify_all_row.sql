-- The name of stream 0.
select stream_name
from kiroku.streams
where stream_id = 0;
