-- When each bucket was first claimed after $1, and last, in milliseconds after it.
select extract(epoch from min(o.at) - $1::timestamptz)::float8 * 1000, extract(epoch from max(o.at) - $1::timestamptz)::float8 * 1000
from chaos.owners o
where o.to_worker is not null and o.at >= $1
group by o.bucket
order by 1
