-- The schema kiroku and its generator of UUIDv7. Apply the files of this
-- directory in the order of their names, in one transaction, to a database
-- that has no schema kiroku. Together they are the state that kiroku's own
-- migrations 0001 to 0011 end in.

create schema kiroku;

comment on schema kiroku is 'Managed by pg-migrate component kiroku through 0011';

-- PostgreSQL 18 brings a generator; before it, a random UUID gets 48 bits of
-- time in front and the version nibble 7. The variant is right already.
do $install$
begin
    if to_regprocedure('pg_catalog.uuidv7()') is not null then
        execute $create$
            create function kiroku.uuidv7() returns uuid
            language sql volatile
            as 'select pg_catalog.uuidv7()'
        $create$;
    else
        execute $create$
            create function kiroku.uuidv7() returns uuid
            language plpgsql volatile
            as $body$
            declare
                millis bigint := (extract(epoch from pg_catalog.clock_timestamp()) * 1000)::bigint;
                id bytea := pg_catalog.uuid_send(pg_catalog.gen_random_uuid());
            begin
                id := pg_catalog.substring(pg_catalog.int8send(millis), 3) || pg_catalog.substring(id, 7);
                id := pg_catalog.set_byte(id, 6, pg_catalog.get_byte(id, 6) & 15 | 112);
                return pg_catalog.encode(id, 'hex')::uuid;
            end
            $body$
        $create$;
    end if;
end
$install$;
