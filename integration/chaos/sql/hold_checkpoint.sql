-- Locks the row of a checkpoint.
select 1 from kiroku.subscriptions s where s.subscription_name = $1 and s.consumer_group_member = $2 for update
