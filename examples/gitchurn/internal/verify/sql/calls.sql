-- Order and repeats, from the calls as they came. Wrong order: an event whose
-- first call came before that of an earlier event of its stream. Repeated:
-- every call after the first for one event; explained are those of events that
-- the killed worker handled first and that lay above the checkpoint it left.
with ranked as (
    select id, stream, version, split_part(stream, '-', 1) as category, bucket, position,
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
    (
        select count(*)
        from ranked
        join unnest(@categories::text[], @buckets::int[], @checkpoints::bigint[]) as held (category, bucket, checkpoint)
            using (category, bucket)
        where nth > 1 and first_worker = @killed::text and position > checkpoint
    ) as explained
