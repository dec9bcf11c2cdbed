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

-- Under which names workers run.
create table chaos.names (
    worker uuid primary key,
    name text not null
);

create table chaos.changes (
    id bigserial primary key,
    bucket integer not null,
    from_worker uuid,
    from_expires timestamptz,
    from_marked boolean not null,
    to_worker uuid,
    writer text not null,
    began timestamptz not null default transaction_timestamp(),
    at timestamptz not null default clock_timestamp()
);
create index changes_bucket_idx on chaos.changes (bucket, at);

create view chaos.owners as
select c.*, f.name as from_name, t.name as to_name
from chaos.changes c
left join chaos.names f on f.worker = c.from_worker
left join chaos.names t on t.worker = c.to_worker;

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

create table chaos.progress (
    id bigserial primary key,
    bucket integer not null,
    before bigint not null,
    after bigint not null,
    owner uuid,
    writer text not null,
    began timestamptz not null default transaction_timestamp(),
    at timestamptz not null default clock_timestamp()
);

create view chaos.checkpoints as
select p.*, n.name as owner_name
from chaos.progress p
left join chaos.names n on n.worker = p.owner;

create table chaos.parked (
    id bigserial primary key,
    bucket integer not null,
    position bigint not null,
    owner uuid,
    writer text not null,
    began timestamptz not null default transaction_timestamp(),
    at timestamptz not null default clock_timestamp()
);

create view chaos.letters as
select p.*, n.name as owner_name
from chaos.parked p
left join chaos.names n on n.worker = p.owner;

create table chaos.kills (
    worker text not null,
    at timestamptz not null
);

-- Triggers do as little as they can: what they take is missing in what is measured.
create function chaos.joined() returns trigger language plpgsql as $$
begin
    insert into chaos.names (worker, name) values (new.worker, new.host) on conflict do nothing;
    return null;
end
$$;

create trigger chaos_joined after insert on suisha.workers
    for each row execute function chaos.joined();

create function chaos.owner_changed() returns trigger language plpgsql as $$
begin
    insert into chaos.changes (bucket, from_worker, from_expires, from_marked, to_worker, writer)
    values (
        new.bucket, old.owner_worker_id, old.lease_expires_at,
        exists (select from suisha.workers w where w.worker = old.owner_worker_id and w.gone_at is not null),
        new.owner_worker_id, current_setting('application_name')
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

create function chaos.checkpoints_moved() returns trigger language plpgsql as $$
begin
    insert into chaos.progress (bucket, before, after, owner, writer)
    select n.consumer_group_member, o.last_seen, n.last_seen, s.owner_worker_id, current_setting('application_name')
    from news n
    join olds o on o.subscription_name = n.subscription_name and o.consumer_group_member = n.consumer_group_member
    left join keiro.keiro_subscription_shards s
        on s.subscription_name = n.subscription_name and s.bucket = n.consumer_group_member;
    return null;
end
$$;

create trigger chaos_checkpoints_moved after update on kiroku.subscriptions
    referencing old table as olds new table as news
    for each statement execute function chaos.checkpoints_moved();

create function chaos.letter_written() returns trigger language plpgsql as $$
declare
    holder uuid;
begin
    select s.owner_worker_id into holder from keiro.keiro_subscription_shards s
    where s.subscription_name = new.subscription_name and s.bucket = new.consumer_group_member;
    insert into chaos.parked (bucket, position, owner, writer)
    values (new.consumer_group_member, new.global_position, holder, current_setting('application_name'));
    return null;
end
$$;

create trigger chaos_letter_written after insert on kiroku.dead_letters
    for each row execute function chaos.letter_written();
