-- Streams $1-0, $1-1, … of which there are $2; $3 events are dealt to them by
-- turns.
insert into kiroku.streams (stream_name, stream_version)
select $1::text || '-' || g, ($3::int8 - 1 - g) / $2::int8 + 1
from generate_series(0, least($2::int8, $3::int8) - 1) g
