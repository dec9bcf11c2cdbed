-- Who owns how many buckets.
select coalesce(w.host, '?'), count(*)
from keiro.keiro_subscription_shards s
left join suisha.workers w on w.subscription = s.subscription_name and w.worker = s.owner_worker_id
where s.subscription_name = $1 and s.owner_worker_id is not null and s.lease_expires_at > clock_timestamp()
group by 1
