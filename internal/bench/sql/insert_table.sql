-- A table of payloads.
create table payloads (id bigserial primary key, data jsonb not null, at timestamptz not null default now())
