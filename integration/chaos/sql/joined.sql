-- When a worker claimed each of its buckets first, and last, in milliseconds after it
-- joined.
select extract(epoch from min(o.at) - w.joined_at)::float8 * 1000, extract(epoch from max(o.at) - w.joined_at)::float8 * 1000
from chaos.owners o
join suisha.workers w on w.worker = o.to_worker
where o.to_name = $1
group by o.bucket, w.joined_at
order by 1
