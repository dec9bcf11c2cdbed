-- For commit_once.sql.
create table commits (at timestamptz not null default now())
