-- The checkpoints of subscription $1.
select consumer_group_member, last_seen
from kiroku.subscriptions
where subscription_name = $1;
