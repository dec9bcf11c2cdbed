-- The buckets that an operator would take from a worker.
select s.bucket
from keiro.keiro_subscription_shards s
where s.subscription_name = @subscription::text and s.owner_worker_id = @worker::uuid
order by s.bucket
