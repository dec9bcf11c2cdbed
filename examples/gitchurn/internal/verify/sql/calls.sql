-- Order and repeats, from the calls as they came. Wrong order: an event whose
-- first call came before that of an earlier event of its stream. Repeated:
-- every call after the first for one event; those whose first call was the
-- killed worker's are counted apart.
with ranked as (
    select id, worker, stream, version,
        row_number() over (partition by stream, version order by id) as nth,
        first_value(worker) over (partition by stream, version order by id) as first_worker
    from demo.calls
),
ordered as (
    select version < max(version) over (partition by stream order by id rows between unbounded preceding and 1 preceding) as late
    from ranked
    where nth = 1
)
select (select count(*) from ordered where late) as out_of_order,
    (select count(*) from ranked where nth > 1) as repeated,
    (select count(*) from ranked where nth > 1 and first_worker = @killed::text) as repeated_by_kill
