-- Milliseconds from a worker's joining to its last claim.
select extract(epoch from max(o.at) - min(w.joined_at))::float8 * 1000
from chaos.owners o
join suisha.workers w on w.worker = o.to_worker
where o.to_name = $1
