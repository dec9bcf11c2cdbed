-- How many events there are, and the position of the last.
select count(*), coalesce(max(e.stream_version), 0)
from kiroku.stream_events e
join kiroku.streams s on s.stream_id = e.original_stream_id
where e.stream_id = 0 and s.category = 'chaos'
