-- Who owns which bucket, and up to where each is done. A lease that has run out
-- is nobody's. Read only: the demo looks, it does not steer.
select shards.subscription_name, shards.bucket,
    case when shards.lease_expires_at > clock_timestamp() then shards.owner_worker_id end as owner,
    coalesce(checkpoints.last_seen, 0) as checkpoint
from keiro.keiro_subscription_shards as shards
left join kiroku.subscriptions as checkpoints
    on checkpoints.subscription_name = shards.subscription_name
    and checkpoints.consumer_group_member = shards.bucket
order by shards.subscription_name, shards.bucket
