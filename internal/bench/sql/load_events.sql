-- Events $3 to $4 - 1 of category $1, which has $2 streams. Positions begin after
-- $5. If $6 is not 0, each $6-th position is of the rare category, which $7 says
-- that this is. $8 type; $9 metadata, with a zero id in place of the message's;
-- $10 bytes of payload. Ids ascend, as those of appends do.
with numbered as materialized (
    select
        (
            lpad(to_hex((extract(epoch from now()) * 1000)::int8 + k / 100), 12, '0')
            || '7' || lpad(to_hex(k % 100), 3, '0') || '8' || left(md5($1::text || $5::int8 + k), 15)
        )::uuid as event_id,
        k,
        s.stream_id,
        k / $2::int8 + 1 as version,
        $5::int8 + case
            when $6::int8 = 0 then k + 1
            when $7::bool then (k + 1) * $6::int8
            else k + 1 + k / ($6::int8 - 1)
        end as position
    from generate_series($3::int8, $4::int8 - 1) k
    join kiroku.streams s on s.stream_name = $1::text || '-' || k % $2::int8
),

stored as (
    insert into kiroku.events (event_id, event_type, data, metadata, created_at)
    select
        event_id,
        $8::text,
        ('{"n": ' || k || ', "pad": "' || repeat('x', $10::int4 - 18 - length(k::text)) || '"}')::jsonb,
        replace($9::text, '00000000-0000-0000-0000-000000000000', event_id::text)::jsonb,
        clock_timestamp()
    from numbered
    order by k
)

insert into kiroku.stream_events (event_id, stream_id, stream_version, original_stream_id, original_stream_version)
select n.event_id, p.stream_id, p.stream_version, n.stream_id, n.version
from numbered n
cross join lateral (values (n.stream_id, n.version), (0, n.position)) as p (stream_id, stream_version)
order by n.k
