-- Locks a lease row.
select 1 from keiro.keiro_subscription_shards s where s.subscription_name = $1 and s.bucket = $2 for update
