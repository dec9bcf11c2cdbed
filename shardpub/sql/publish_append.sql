-- Appends to one or several streams for a caller that ignores the result: it
-- succeeds in whole, or raises. Streams: $1 names, $2 expectations (any,
-- no_stream, stream_exists, a version), $3 numbers of events. Events, by stream
-- and in order: $4 places of their streams in $1, from 1, $5 ids, $6 types, $7
-- causation ids, $8 correlation ids, $9 data, $10 metadata; '' is null in $7, $8
-- and $10.
--
-- There is no function of ours in the database that could raise with a code of
-- its own. encode() refuses an encoding that it does not know and quotes it
-- (22023), which nothing else here can cause.
with wanted as materialized (
    select w.name, w.expected, w.events, w.ordinal
    from unnest($1::text[], $2::text[], $3::int8[]) with ordinality as w (name, expected, events, ordinal)
),

-- The order of locks is that of every writer: streams that exist by id, new
-- ones by name, row 0 last.
locked as materialized (
    select s.stream_id, s.stream_name, s.stream_version, s.deleted_at
    from kiroku.streams s
    where s.stream_name = any ($1::text[])
    order by s.stream_id
    for no key update
),

judged as materialized (
    select
        w.name,
        w.expected,
        w.ordinal,
        l.stream_id,
        case
            when l.deleted_at is not null
                then length(encode('', format('suisha: stream %s is deleted; nothing was appended', w.name)))
            when l.stream_id is null and w.expected not in ('any', 'no_stream')
                then length(encode('', format('suisha: stream %s does not exist, expected %s; nothing was appended', w.name, w.expected)))
            when l.stream_id is not null and w.expected not in ('any', 'stream_exists', l.stream_version::text)
                then length(encode('', format('suisha: stream %s is at version %s, expected %s; nothing was appended', w.name, l.stream_version, w.expected)))
            else w.events
        end as events
    from wanted w
    left join locked l on l.stream_name = w.name
),

moved as (
    update kiroku.streams s
    set stream_version = s.stream_version + j.events
    from judged j
    where s.stream_id = j.stream_id
    returning s.stream_id, s.stream_name, s.stream_version
),

-- A stream that another transaction creates meanwhile is waited for, and then
-- it is there.
created as (
    insert into kiroku.streams as s (stream_name, stream_version)
    select j.name, j.events
    from judged j
    where j.stream_id is null
    order by j.name collate "C"
    on conflict (stream_name) do update
    set stream_version = s.stream_version + excluded.stream_version
    where s.deleted_at is null
        and exists (select from wanted w where w.name = s.stream_name and w.expected = 'any')
    returning s.stream_id, s.stream_name, s.stream_version
),

targets as materialized (
    select
        j.ordinal,
        case
            when t.stream_id is null
                then length(encode('', format('suisha: stream %s was created or deleted meanwhile, expected %s; nothing was appended', j.name, j.expected)))
            else t.stream_id
        end as stream_id,
        t.stream_version - j.events as version_before
    from judged j
    left join (
        select stream_id, stream_name, stream_version from moved
        union all
        select stream_id, stream_name, stream_version from created
    ) t on t.stream_name = j.name
),

batch as materialized (
    select
        b.stream,
        b.event_id,
        b.event_type,
        nullif(b.causation_id, '')::uuid as causation_id,
        nullif(b.correlation_id, '')::uuid as correlation_id,
        b.data::jsonb as data,
        nullif(b.metadata, '')::jsonb as metadata,
        b.ordinal,
        row_number() over (partition by b.stream order by b.ordinal) as number
    from unnest($4::int8[], $5::uuid[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[]) with ordinality
        as b (stream, event_id, event_type, causation_id, correlation_id, data, metadata, ordinal)
),

-- The clock is read under the lock of row 0, so time follows position.
head as (
    update kiroku.streams s
    set stream_version = s.stream_version + n.events
    from (select count(*) as events from batch) n, (select count(stream_id) as streams from targets) t
    where s.stream_id = 0 and n.events > 0 and t.streams > 0
    returning s.stream_version - n.events as position_before, clock_timestamp() as recorded_at
),

stored as (
    insert into kiroku.events (event_id, event_type, causation_id, correlation_id, data, metadata, created_at)
    select b.event_id, b.event_type, b.causation_id, b.correlation_id, b.data, b.metadata, head.recorded_at
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
            (0, head.position_before + b.ordinal)
    ) as p (stream_id, stream_version)
)

-- The number in the text is not there for its own sake: a constant would be
-- encoded, and refused, when the statement is planned.
select
    case
        when n.events > 0 and not exists (select from head)
            then length(encode('', format('suisha: the event store has no row for $all; none of %s events was appended', n.events)))
        else n.events
    end as appended
from (select count(*) as events from batch) n
