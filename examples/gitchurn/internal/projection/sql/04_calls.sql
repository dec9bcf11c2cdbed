-- One row per call of a handler, in the order of the calls. Nothing is unique
-- here, so that repeats and wrong order would show.
create table demo.calls (
    id bigserial,
    worker text not null,
    bucket int not null,
    stream text not null,
    version bigint not null,
    position bigint not null,
    attempt int not null,
    at timestamptz not null default clock_timestamp()
)
