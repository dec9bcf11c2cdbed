-- For each bucket that the killed worker had and that had events left: the time
-- from the kill to the first call elsewhere. The slowest counts.
with heirs as (
    select split_part(stream, '-', 1) as category, bucket, min(at) as at
    from demo.calls
    where worker <> @killed::text and at > @killed_at::timestamptz
    group by 1, 2
)
select coalesce(extract(epoch from max(heirs.at) - @killed_at::timestamptz), 0)::float8 as seconds,
    count(heirs.at) as buckets
from unnest(@categories::text[], @buckets::int[]) as held (category, bucket)
join heirs using (category, bucket)
