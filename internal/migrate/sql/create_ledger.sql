-- Which migration of which component was applied, and what it was.
create table suisha.migrations (
    component text not null,
    version int not null check (version >= 1),
    name text not null,
    sha256 text not null,
    applied_at timestamptz not null default now(),
    primary key (component, version)
)
