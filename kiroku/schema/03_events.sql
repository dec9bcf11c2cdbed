-- Events, and the junction that says which streams an event is in: its home
-- stream, stream 0, and any stream it was linked to.

create table kiroku.events (
    event_id       uuid        primary key,
    event_type     text        not null,
    causation_id   uuid,
    correlation_id uuid,
    data           jsonb       not null,
    metadata       jsonb,
    created_at     timestamptz not null default now()
);

do $install$
begin
    if to_regprocedure('pg_catalog.uuidv7()') is not null then
        alter table kiroku.events alter column event_id set default pg_catalog.uuidv7();
    else
        alter table kiroku.events alter column event_id set default kiroku.uuidv7();
    end if;
end
$install$;

create index ix_events_correlation_id on kiroku.events (correlation_id) where correlation_id is not null;
create index ix_events_causation_id on kiroku.events (causation_id) where causation_id is not null;

create table kiroku.stream_events (
    event_id                uuid   not null references kiroku.events (event_id),
    stream_id               bigint not null references kiroku.streams (stream_id),
    stream_version          bigint not null,
    original_stream_id      bigint not null,
    original_stream_version bigint not null,
    primary key (event_id, stream_id)
);

create unique index ux_stream_events_stream_version on kiroku.stream_events (stream_id, stream_version);
create index ix_stream_events_all_by_origin on kiroku.stream_events (original_stream_id, stream_version)
    where stream_id = 0;
