-- When the buckets that were handled after $1 first were, in milliseconds after it.
select extract(epoch from min(c.began) - $1::timestamptz)::float8 * 1000
from chaos.calls c
where c.began >= $1
group by c.bucket
order by 1
