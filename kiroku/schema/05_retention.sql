-- Leases that keep history from being destroyed while somebody replays it.
-- One row serializes every change of a lease with every destructive statement.

create table kiroku.history_retention_coordinator (
    singleton boolean primary key default true,
    constraint chk_history_retention_coordinator_singleton check (singleton)
);

insert into kiroku.history_retention_coordinator default values;

create table kiroku.history_retention_leases (
    lease_id          uuid        primary key default kiroku.uuidv7(),
    owner             text        not null,
    reason            text        not null,
    protected_through bigint      not null,
    created_at        timestamptz not null,
    renewed_at        timestamptz not null,
    expires_at        timestamptz not null,
    released_at       timestamptz,
    constraint chk_history_retention_lease_owner_bytes check (octet_length(owner) between 1 and 512),
    constraint chk_history_retention_lease_reason_bytes check (octet_length(reason) between 1 and 2048),
    constraint chk_history_retention_lease_frontier check (protected_through >= 0),
    constraint chk_history_retention_lease_renewal_time check (renewed_at >= created_at),
    constraint chk_history_retention_lease_expiry check (expires_at > created_at),
    constraint chk_history_retention_lease_release_time check (released_at is null or released_at >= created_at)
);

create index ix_history_retention_leases_unreleased_expiry on kiroku.history_retention_leases (expires_at)
    where released_at is null;

comment on table kiroku.history_retention_leases is
    'Who keeps history from being destroyed, and until when. Rows stay as evidence until they are pruned.';
