-- The head, and all checkpoints beside it; one row without a checkpoint if
-- there are none.
select
    h.stream_version,
    s.subscription_name,
    s.consumer_group_member,
    s.last_seen,
    s.updated_at
from kiroku.streams h
left join kiroku.subscriptions s on true
where h.stream_id = 0
order by s.subscription_name, s.consumer_group_member;
