-- Triggers: who appends wakes the readers; nothing recorded is changed;
-- nothing is destroyed by accident, or while a retention lease is active.

create function kiroku.notify_events() returns trigger
language plpgsql as $body$
begin
    perform pg_catalog.pg_notify(
        tg_table_schema || '.events',
        pg_catalog.concat_ws(',', new.stream_name, new.stream_id, new.stream_version)
    );
    return null;
end
$body$;

create function kiroku.prevent_mutation() returns trigger
language plpgsql as $body$
begin
    raise exception '%.% is append-only', tg_table_schema, tg_table_name;
end
$body$;

create function kiroku.protect_deletion() returns trigger
language plpgsql as $body$
begin
    if pg_catalog.current_setting('kiroku.enable_hard_deletes', true) is distinct from 'on' then
        raise exception 'deleting from %.% needs kiroku.enable_hard_deletes = on', tg_table_schema, tg_table_name
            using hint = 'set local kiroku.enable_hard_deletes = ''on'' in the same transaction';
    end if;
    return old;
end
$body$;

create function kiroku.protect_truncation() returns trigger
language plpgsql as $body$
begin
    if pg_catalog.current_setting('kiroku.enable_hard_deletes', true) is distinct from 'on' then
        raise exception 'truncating %.% needs kiroku.enable_hard_deletes = on', tg_table_schema, tg_table_name
            using hint = 'set local kiroku.enable_hard_deletes = ''on'' in the same transaction';
    end if;
    return null;
end
$body$;

create function kiroku.protect_replay_history_from_destruction() returns trigger
language plpgsql as $body$
declare
    active bigint;
begin
    perform from kiroku.history_retention_coordinator where singleton for update;
    select count(*) into active
    from kiroku.history_retention_leases
    where released_at is null and expires_at > pg_catalog.clock_timestamp();
    if active > 0 then
        raise exception '% active retention lease(s) protect the history of %.%', active, tg_table_schema, tg_table_name
            using errcode = 'KR001';
    end if;
    return null;
end
$body$;

create trigger stream_events_notify_insert after insert on kiroku.streams
    for each row when (new.stream_id <> 0) execute function kiroku.notify_events();
create trigger stream_events_notify_update after update on kiroku.streams
    for each row when (new.stream_id <> 0 and new.stream_version is distinct from old.stream_version)
    execute function kiroku.notify_events();

create trigger no_update_events before update on kiroku.events
    for each row execute function kiroku.prevent_mutation();
create trigger no_update_stream_events before update on kiroku.stream_events
    for each row execute function kiroku.prevent_mutation();

create trigger no_delete_streams before delete on kiroku.streams
    for each row execute function kiroku.protect_deletion();
create trigger no_delete_events before delete on kiroku.events
    for each row execute function kiroku.protect_deletion();
create trigger no_delete_stream_events before delete on kiroku.stream_events
    for each row execute function kiroku.protect_deletion();

create trigger no_truncate_streams before truncate on kiroku.streams
    for each statement execute function kiroku.protect_truncation();
create trigger no_truncate_events before truncate on kiroku.events
    for each statement execute function kiroku.protect_truncation();
create trigger no_truncate_stream_events before truncate on kiroku.stream_events
    for each statement execute function kiroku.protect_truncation();

create trigger protect_replay_history_delete before delete on kiroku.streams
    for each statement execute function kiroku.protect_replay_history_from_destruction();
create trigger protect_replay_history_delete before delete on kiroku.events
    for each statement execute function kiroku.protect_replay_history_from_destruction();
create trigger protect_replay_history_delete before delete on kiroku.stream_events
    for each statement execute function kiroku.protect_replay_history_from_destruction();

create trigger protect_replay_history_truncate before truncate on kiroku.streams
    for each statement execute function kiroku.protect_replay_history_from_destruction();
create trigger protect_replay_history_truncate before truncate on kiroku.events
    for each statement execute function kiroku.protect_replay_history_from_destruction();
create trigger protect_replay_history_truncate before truncate on kiroku.stream_events
    for each statement execute function kiroku.protect_replay_history_from_destruction();
