-- What kiroku's append to a stream of any version does, in our words. Events: $1
-- ids, $2 types, $3 causation ids, $4 correlation ids, $5 data, $6 metadata, $7
-- times; $8 the stream.
with batch as materialized (
    select b.event_id, b.event_type, b.causation_id, b.correlation_id, b.data, b.metadata, b.created_at, b.idx
    from unnest($1::uuid[], $2::text[], $3::uuid[], $4::uuid[], $5::text[], $6::text[], $7::timestamptz[]) with ordinality
        as b (event_id, event_type, causation_id, correlation_id, data, metadata, created_at, idx)
),

target as (
    insert into kiroku.streams as s (stream_name, stream_version)
    values ($8::text, (select count(*) from batch))
    on conflict (stream_name) do update
    set stream_version = s.stream_version + excluded.stream_version
    where s.deleted_at is null
    returning s.stream_id, s.stream_version, s.stream_version - (select count(*) from batch) as version_before
),

stored as (
    insert into kiroku.events (event_id, event_type, causation_id, correlation_id, data, metadata, created_at)
    select b.event_id, b.event_type, b.causation_id, b.correlation_id, b.data::jsonb, b.metadata::jsonb, b.created_at
    from batch b
    cross join target
    order by b.idx
),

home as (
    insert into kiroku.stream_events (event_id, stream_id, stream_version, original_stream_id, original_stream_version)
    select b.event_id, t.stream_id, t.version_before + b.idx, t.stream_id, t.version_before + b.idx
    from batch b
    cross join target t
),

head as (
    update kiroku.streams s
    set stream_version = s.stream_version + (select count(*) from batch)
    from target
    where s.stream_id = 0
    returning s.stream_version - (select count(*) from batch) as position_before, s.stream_version as position
),

placed as (
    insert into kiroku.stream_events (event_id, stream_id, stream_version, original_stream_id, original_stream_version)
    select b.event_id, 0, h.position_before + b.idx, t.stream_id, t.version_before + b.idx
    from batch b
    cross join target t
    cross join head h
)

select target.stream_id, target.stream_version, head.position
from target
cross join head
