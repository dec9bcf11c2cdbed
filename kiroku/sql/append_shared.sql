-- Appends for several callers at once: each call is written whole or not at
-- all, whatever becomes of the others. One row per call and stream, by call:
-- $1 calls, $2 names, $3 kinds of expectation (0 any, 1 no stream, 2 exists, 3
-- exactly), $4 expected versions, $5 numbers of events. Events: $6 ids, $7
-- types, $8 causation ids, $9 correlation ids, $10 data, $11 metadata, $12
-- ordinals of their rows in $1, $13 their numbers in it, from 1. $14 are ids
-- that callers chose, $15 their calls.
--
-- Each expectation is judged by what the stream was before: whoever gathers the
-- calls leaves out those that depend on another one.
with wanted as materialized (
    select w.call, w.name, w.kind, w.version, w.events, w.ordinal
    from unnest($1::int8[], $2::text[], $3::int2[], $4::int8[], $5::int8[]) with ordinality
        as w (call, name, kind, version, events, ordinal)
),

-- The order of locks is that of every writer: streams that exist by id, new
-- ones by name, row 0 last. Streams that others have locked hold up their own
-- calls only. (A second form of this statement waits for them.)
locked as materialized (
    select l.stream_id, l.stream_name, l.stream_version, l.deleted_at is not null as deleted
    from (
        select distinct i.stream_id
        from unnest($2::text[]) as n (name)
        cross join lateral (select stream_id from kiroku.streams where stream_name = n.name offset 0) i
        order by i.stream_id
    ) i
    cross join lateral (
        select s.stream_id, s.stream_name, s.stream_version, s.deleted_at
        from kiroku.streams s
        where s.stream_id = i.stream_id
        for no key update skip locked
    ) l
),

judged as materialized (
    select
        w.call,
        w.name,
        w.events,
        w.ordinal,
        l.stream_id,
        l.stream_version,
        l.deleted,
        l.stream_id is null and exists (select from kiroku.streams s where s.stream_name = w.name) as busy,
        case
            when l.stream_id is null then w.kind in (0, 1)
            when l.deleted or w.kind = 1 then false
            else w.kind <> 3 or l.stream_version = w.version
        end as met,
        w.call in (
            select g.call
            from unnest($14::uuid[], $15::int8[]) as g (event_id, call)
            where exists (select from kiroku.events e where e.event_id = g.event_id)
        ) as known
    from wanted w
    left join locked l on l.stream_name = w.name
),

-- What will be written, and how much of it there is up to and with each row: in
-- its stream, and in all.
passed as materialized (
    select
        j.name,
        j.events,
        j.ordinal,
        j.stream_id,
        sum(j.events) over (partition by j.name order by j.ordinal)::int8 as in_stream,
        sum(j.events) over (partition by j.name)::int8 as growth,
        sum(j.events) over (order by j.ordinal)::int8 as in_all
    from judged j
    where j.call not in (select f.call from judged f where f.busy or f.known or not f.met)
        and exists (select from kiroku.streams where stream_id = 0)
),

created as (
    insert into kiroku.streams (stream_name, stream_version)
    select p.name, p.growth
    from passed p
    where p.stream_id is null and p.in_stream = p.growth
    order by p.name collate "C"
    on conflict (stream_name) do nothing
    returning stream_id, stream_name, stream_version
),

-- Somebody else created a stream that this statement cannot see: as in
-- append.sql.
raced as materialized (
    select
        case
            when c.streams = n.streams then false
            when c.streams = 0 then true
            else 1 / (c.streams * 0) = 1
        end as lost
    from (select count(*) as streams from created) c
    cross join (select count(*) as streams from passed p where p.stream_id is null and p.in_stream = p.growth) n
),

-- By an array, so that the index is used whatever the statistics say.
moved as (
    update kiroku.streams s
    set stream_version = s.stream_version + p.growth
    from passed p
    cross join raced
    where not raced.lost
        and p.in_stream = p.growth
        and s.stream_id = p.stream_id
        and s.stream_id = any (array(select n.stream_id from passed n))
    returning s.stream_id, s.stream_name, s.stream_version
),

targets as materialized (
    select p.ordinal, p.events, p.in_all, t.stream_id, t.stream_version - p.growth + p.in_stream as version_after
    from (
        select stream_id, stream_name, stream_version from moved
        union all
        select stream_id, stream_name, stream_version from created
    ) t
    join passed p on p.name = t.stream_name
    cross join raced
    where not raced.lost
),

-- The clock is read under the lock of row 0, so time follows position.
head as (
    update kiroku.streams s
    set stream_version = s.stream_version + n.events
    from (select sum(t.events)::int8 as events, count(*) as rows from targets t) n
    where s.stream_id = 0 and n.rows > 0 and n.rows = (select count(*) from passed)
    returning s.stream_version - n.events as position_before, clock_timestamp() as recorded_at
),

batch as materialized (
    select
        b.event_id,
        b.event_type,
        b.causation_id,
        b.correlation_id,
        b.data,
        b.metadata,
        t.stream_id,
        t.version_after - t.events + b.number as stream_version,
        head.position_before + t.in_all - t.events + b.number as position,
        head.recorded_at
    from unnest(
        $6::uuid[], $7::text[], $8::uuid[], $9::uuid[], $10::text[], $11::text[], $12::int8[], $13::int8[]
    ) as b (event_id, event_type, causation_id, correlation_id, data, metadata, target, number)
    join targets t on t.ordinal = b.target
    cross join head
),

stored as (
    insert into kiroku.events (event_id, event_type, causation_id, correlation_id, data, metadata, created_at)
    select
        b.event_id,
        b.event_type,
        b.causation_id,
        b.correlation_id,
        b.data::jsonb,
        b.metadata::jsonb,
        b.recorded_at
    from batch b
),

placed as (
    insert into kiroku.stream_events
        (event_id, stream_id, stream_version, original_stream_id, original_stream_version)
    select b.event_id, p.stream_id, p.stream_version, b.stream_id, b.stream_version
    from batch b
    cross join lateral (values (b.stream_id, b.stream_version), (0, b.position)) as p (stream_id, stream_version)
)

select
    j.met,
    j.stream_id is not null as found,
    coalesce(j.deleted, false) as deleted,
    coalesce(j.stream_version, 0) as version_found,
    raced.lost,
    coalesce(t.stream_id, 0) as stream_id,
    coalesce(t.version_after, 0) as stream_version,
    coalesce(head.position_before + t.in_all, 0) as position,
    j.busy,
    j.known
from judged j
cross join raced
left join targets t on t.ordinal = j.ordinal
left join head on true
order by j.ordinal;
