-- Where in the log the events of each bucket begin and end: what its checkpoint
-- is shown against.
select streams.category, home.bucket, min(log.stream_version), max(log.stream_version)
from kiroku.stream_events as log
join kiroku.streams on streams.stream_id = log.original_stream_id
cross join lateral (
    select ((hashtextextended(streams.stream_id::text, 0) % @buckets::bigint + @buckets) % @buckets)::int as bucket
) as home
where log.stream_id = 0
group by 1, 2
