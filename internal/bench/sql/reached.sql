-- How many streams of category $2 end above the checkpoint of their bucket in
-- subscription $1, which has $3 buckets.
select count(*)
from kiroku.streams s
cross join lateral (
    select max(se.stream_version) as position
    from kiroku.stream_events se
    where se.stream_id = 0 and se.original_stream_id = s.stream_id
) final
left join kiroku.subscriptions c
    on c.subscription_name = $1
    and c.consumer_group_member = (hashtextextended(s.stream_id::text, 0) % $3::int8 + $3::int8) % $3::int8
where s.category = $2 and final.position > coalesce(c.last_seen, 0)
