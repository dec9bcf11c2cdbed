-- What a dead worker has left behind: the checkpoints of the buckets it had, in
-- the order in which they are named.
select coalesce(checkpoints.last_seen, 0)
from unnest(@subscriptions::text[], @buckets::int[]) with ordinality as held (subscription, bucket, nth)
left join kiroku.subscriptions as checkpoints
    on checkpoints.subscription_name = held.subscription
    and checkpoints.consumer_group_member = held.bucket
order by held.nth
