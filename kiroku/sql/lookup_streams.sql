-- What is fixed about streams: $1 stream ids. The hash is what consumer groups
-- divide by.
select stream_id, stream_name, category, hashtextextended(stream_id::text, 0)
from kiroku.streams
where stream_id = any ($1::int8[]);
