-- Streams. Row 0 is the log of everything: its stream_version is the last
-- global position. Half of each page stays free, because every append updates
-- a row here.

create table kiroku.streams (
    stream_id       bigserial   primary key,
    stream_name     text        not null,
    category        text        generated always as (split_part(stream_name, '-', 1)) stored,
    stream_version  bigint      not null default 0,
    created_at      timestamptz not null default now(),
    deleted_at      timestamptz,
    truncate_before bigint      not null default 0,
    constraint ix_streams_stream_name unique (stream_name),
    constraint chk_streams_stream_name_length check (octet_length(stream_name) <= 512)
) with (fillfactor = 50);

create index ix_streams_category on kiroku.streams (category);

insert into kiroku.streams (stream_id, stream_name) values (0, '$all');

-- The sequence stands on 1 as used: the first stream of an application is 2.
select setval('kiroku.streams_stream_id_seq', 1);
