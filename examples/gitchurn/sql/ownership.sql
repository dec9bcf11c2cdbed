-- Who owns which bucket, and how much of the log each has behind it. A lease
-- that has run out is nobody's. Read only: the demo looks, it does not steer.
select shards.subscription_name, shards.bucket,
    case when shards.lease_expires_at > clock_timestamp() then shards.owner_worker_id end as owner,
    coalesce(checkpoints.last_seen, 0) as read,
    log.stream_version as head
from keiro.keiro_subscription_shards as shards
cross join (select stream_version from kiroku.streams where stream_id = 0) as log
left join kiroku.subscriptions as checkpoints
    on checkpoints.subscription_name = shards.subscription_name
    and checkpoints.consumer_group_member = shards.bucket
order by shards.subscription_name, shards.bucket
