-- The orders whose rows are not what the rule says: order k has 3 to 7 lines in
-- turn, and the amounts follow from the two numbers. The first row is the sum.
with expected as (
    select 'order-' || k as stream, count(*) as lines, sum(100 + (37 * k + 11 * i) % 900) as amount
    from generate_series(1, @orders::bigint) as k, generate_series(1, 3 + k % 5) as i
    group by k
),
compared as (
    select coalesce(expected.stream, known.stream) as stream,
        coalesce(expected.lines, 0) as want, coalesce(known.lines, 0) as got,
        expected.lines is not distinct from known.lines and expected.amount is not distinct from known.amount as equal
    from expected full join demo.orders as known using (stream)
)
select count(*) filter (where want > 0)::bigint as rows,
    coalesce(sum(want), 0)::bigint as events,
    coalesce(sum(greatest(want - got, 0)), 0)::bigint as lost,
    coalesce((array_agg(stream order by stream) filter (where not equal))[:20], '{}') as broken,
    count(*) filter (where not equal)::bigint as broken_rows
from compared
