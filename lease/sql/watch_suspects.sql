-- The workers of a session that has ended, and when each last beat.
select w.subscription, w.worker, (extract(epoch from w.heartbeat_at) * 1000000)::bigint
from suisha.workers w
where w.lock = $1 and w.gone_at is null
order by w.subscription, w.worker
