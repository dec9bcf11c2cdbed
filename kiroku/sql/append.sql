-- Appends to one or several streams: everything, or nothing and the reasons.
-- Streams, in the caller's order: $1 names, $2 kinds of expectation (0 any,
-- 1 no stream, 2 exists, 3 exactly), $3 expected versions, $4 numbers of
-- events, $5 numbers of events of the streams before. Events: $6 ids, $7 types,
-- $8 causation ids, $9 correlation ids, $10 data, $11 metadata, $12 ordinals of
-- their streams, $13 their numbers in the append to that stream, from 1.
with wanted as materialized (
    select w.name, w.kind, w.version, w.events, w.preceding, w.ordinal
    from unnest($1::text[], $2::int2[], $3::int8[], $4::int8[], $5::int8[]) with ordinality
        as w (name, kind, version, events, preceding, ordinal)
),

-- Every writer locks in one order: the streams that exist by id, then the new
-- ones by name, row 0 last. No key update is what the update below takes.
locked as materialized (
    select s.stream_id, s.stream_name, s.stream_version, s.deleted_at is not null as deleted
    from kiroku.streams s
    where s.stream_name = any ($1::text[])
    order by s.stream_id
    for no key update
),

judged as materialized (
    select
        w.name,
        w.events,
        w.preceding,
        w.ordinal,
        l.stream_id,
        l.stream_version,
        l.deleted,
        case
            when l.stream_id is null then w.kind in (0, 1)
            when l.deleted or w.kind = 1 then false
            else w.kind <> 3 or l.stream_version = w.version
        end as met
    from wanted w
    left join locked l on l.stream_name = w.name
),

gate as materialized (
    select
        bool_and(j.met) and exists (select from kiroku.streams where stream_id = 0) as opened,
        count(*) as streams,
        count(*) filter (where j.stream_id is null) as missing,
        sum(j.events)::int8 as events
    from judged j
),

created as (
    insert into kiroku.streams (stream_name, stream_version)
    select j.name, j.events
    from judged j
    cross join gate
    where gate.opened and j.stream_id is null
    order by j.name collate "C"
    on conflict (stream_name) do nothing
    returning stream_id, stream_name, stream_version
),

-- Somebody else created a stream that this statement cannot see. If it was the
-- only one to create, nothing is written yet and nothing will be. If others
-- were created, only an error takes them back: a division by zero (22012),
-- which nothing else here can raise.
raced as materialized (
    select
        case
            when not gate.opened or c.streams = gate.missing then false
            when c.streams = 0 then true
            else 1 / (c.streams * 0) = 1
        end as lost
    from (select count(*) as streams from created) c
    cross join gate
),

moved as (
    update kiroku.streams s
    set stream_version = s.stream_version + j.events
    from judged j
    cross join gate
    cross join raced
    where gate.opened and not raced.lost and s.stream_id = j.stream_id
    returning s.stream_id, s.stream_name, s.stream_version
),

targets as materialized (
    select j.ordinal, j.preceding, t.stream_id, t.stream_version, t.stream_version - j.events as version_before
    from (
        select stream_id, stream_name, stream_version from moved
        union all
        select stream_id, stream_name, stream_version from created
    ) t
    join judged j on j.name = t.stream_name
    cross join raced
    where not raced.lost
),

-- The clock is read under the lock of row 0, so time follows position.
head as (
    update kiroku.streams s
    set stream_version = s.stream_version + gate.events
    from gate
    where s.stream_id = 0 and gate.streams = (select count(*) from targets)
    returning s.stream_version - gate.events as position_before, clock_timestamp() as recorded_at
),

batch as materialized (
    select b.event_id, b.event_type, b.causation_id, b.correlation_id, b.data, b.metadata, b.stream, b.number
    from unnest(
        $6::uuid[], $7::text[], $8::uuid[], $9::uuid[], $10::text[], $11::text[], $12::int8[], $13::int8[]
    ) as b (event_id, event_type, causation_id, correlation_id, data, metadata, stream, number)
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
        head.recorded_at
    from batch b
    cross join head
),

placed as (
    insert into kiroku.stream_events
        (event_id, stream_id, stream_version, original_stream_id, original_stream_version)
    select b.event_id, p.stream_id, p.stream_version, t.stream_id, t.version_before + b.number
    from batch b
    join targets t on t.ordinal = b.stream
    cross join head
    cross join lateral (
        values
            (t.stream_id, t.version_before + b.number),
            (0, head.position_before + t.preceding + b.number)
    ) as p (stream_id, stream_version)
)

select
    j.met,
    j.stream_id is not null as found,
    coalesce(j.deleted, false) as deleted,
    coalesce(j.stream_version, 0) as version_found,
    raced.lost,
    coalesce(t.stream_id, 0) as stream_id,
    coalesce(t.stream_version, 0) as stream_version,
    coalesce(head.position_before + j.preceding + j.events, 0) as position
from judged j
cross join raced
left join targets t on t.ordinal = j.ordinal
left join head on true
order by j.ordinal;
