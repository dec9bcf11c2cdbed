-- The workers of a session that has ended, and when each last beat.
select w.subscription, w.worker, w.heartbeat_at
from suisha.workers w
where w.lock = $1 and w.gone_at is null
order by w.subscription, w.worker
