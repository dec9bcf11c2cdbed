-- What a subscription's name means (P-1).
create table suisha.subscriptions (
    name text primary key,
    target text not null,
    shards int not null check (shards >= 1),
    filter text not null default '',
    created_at timestamptz not null default now()
);

-- Presence: one row per worker and subscription, whether or not it owns
-- anything. The rows are rewritten by every beat, so pages keep room for that.
create table suisha.workers (
    subscription text not null,
    worker uuid not null,
    host text not null,
    pid int not null,
    version text not null,
    session boolean not null,
    weight int not null check (weight >= 1),
    labels jsonb not null default '{}',
    joined_at timestamptz not null,
    heartbeat_at timestamptz not null,
    expires_at timestamptz not null,
    gone_at timestamptz,
    draining boolean not null default false,
    giving int[] not null default '{}',
    primary key (subscription, worker)
) with (fillfactor = 50);

-- Who took which bucket from whom. Joining workers keep it short.
create table suisha.ownership_log (
    id bigint generated always as identity primary key,
    subscription text not null,
    bucket int not null,
    from_worker uuid,
    to_worker uuid,
    reason text not null,
    at timestamptz not null
);

create index ownership_log_subscription_idx on suisha.ownership_log (subscription, id);
