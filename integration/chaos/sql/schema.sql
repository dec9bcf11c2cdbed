-- What the chaos program keeps beside the schemas under test: every call of a
-- handler, and what triggers saw happen to leases, checkpoints and dead letters.
create schema chaos;

-- began is the worker's clock before the handler did anything, at the server's
-- when it had ended: both clocks are this machine's.
create table chaos.calls (
    id bigserial primary key,
    worker text not null,
    worker_id uuid not null,
    bucket integer not null,
    stream text not null,
    version bigint not null,
    position bigint not null,
    attempt integer not null,
    began timestamptz not null,
    at timestamptz not null default clock_timestamp()
);
create index calls_bucket_idx on chaos.calls (bucket, began);

create table chaos.owners (
    id bigserial primary key,
    bucket integer not null,
    from_worker uuid,
    from_name text,
    from_expires timestamptz,
    from_marked boolean not null,
    to_worker uuid,
    to_name text,
    writer text not null,
    began timestamptz not null default transaction_timestamp(),
    at timestamptz not null default clock_timestamp()
);
create index owners_bucket_idx on chaos.owners (bucket, at);

-- Every claim, also one of a bucket that was the worker's own already: each
-- begins a tenure.
create table chaos.claims (
    id bigserial primary key,
    bucket integer not null,
    worker uuid not null,
    reason text not null,
    at timestamptz not null default clock_timestamp()
);
create index claims_bucket_idx on chaos.claims (bucket, worker, at);

create table chaos.checkpoints (
    id bigserial primary key,
    bucket integer not null,
    before bigint not null,
    after bigint not null,
    owner uuid,
    owner_name text,
    writer text not null,
    began timestamptz not null default transaction_timestamp(),
    at timestamptz not null default clock_timestamp()
);

create table chaos.letters (
    id bigserial primary key,
    bucket integer not null,
    position bigint not null,
    owner uuid,
    owner_name text,
    writer text not null,
    began timestamptz not null default transaction_timestamp(),
    at timestamptz not null default clock_timestamp()
);

create table chaos.kills (
    worker text not null,
    at timestamptz not null
);

create function chaos.name_of(worker uuid) returns text language sql as $$
    select w.host from suisha.workers w where w.worker = $1 limit 1
$$;

create function chaos.owner_changed() returns trigger language plpgsql as $$
begin
    insert into chaos.owners (bucket, from_worker, from_name, from_expires, from_marked, to_worker, to_name, writer)
    values (
        new.bucket, old.owner_worker_id, chaos.name_of(old.owner_worker_id), old.lease_expires_at,
        exists (select from suisha.workers w where w.worker = old.owner_worker_id and w.gone_at is not null),
        new.owner_worker_id, chaos.name_of(new.owner_worker_id), current_setting('application_name')
    );
    return null;
end
$$;

create trigger chaos_owner_changed after update on keiro.keiro_subscription_shards
    for each row when (old.owner_worker_id is distinct from new.owner_worker_id)
    execute function chaos.owner_changed();

create function chaos.claimed() returns trigger language plpgsql as $$
begin
    insert into chaos.claims (bucket, worker, reason) values (new.bucket, new.to_worker, new.reason);
    return null;
end
$$;

create trigger chaos_claimed after insert on suisha.ownership_log
    for each row when (new.to_worker is not null and new.reason <> 'fenced')
    execute function chaos.claimed();

create function chaos.checkpoint_moved() returns trigger language plpgsql as $$
declare
    holder uuid;
begin
    select s.owner_worker_id into holder from keiro.keiro_subscription_shards s
    where s.subscription_name = new.subscription_name and s.bucket = new.consumer_group_member;
    insert into chaos.checkpoints (bucket, before, after, owner, owner_name, writer)
    values (new.consumer_group_member, old.last_seen, new.last_seen, holder, chaos.name_of(holder), current_setting('application_name'));
    return null;
end
$$;

create trigger chaos_checkpoint_moved after update on kiroku.subscriptions
    for each row execute function chaos.checkpoint_moved();

create function chaos.letter_written() returns trigger language plpgsql as $$
declare
    holder uuid;
begin
    select s.owner_worker_id into holder from keiro.keiro_subscription_shards s
    where s.subscription_name = new.subscription_name and s.bucket = new.consumer_group_member;
    insert into chaos.letters (bucket, position, owner, owner_name, writer)
    values (new.consumer_group_member, new.global_position, holder, chaos.name_of(holder), current_setting('application_name'));
    return null;
end
$$;

create trigger chaos_letter_written after insert on kiroku.dead_letters
    for each row execute function chaos.letter_written();
