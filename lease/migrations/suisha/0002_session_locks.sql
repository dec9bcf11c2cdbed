-- The advisory lock that the session of the worker's process holds; null when it
-- holds none. Whoever gets it knows that the session has ended.
alter table suisha.workers add column lock bigint;

create index workers_lock_idx on suisha.workers (lock) where lock is not null;

-- Waits until nobody holds the lock, or until lock_timeout. In a function, so that
-- running into lock_timeout is an answer and no error in the server's log. What it
-- gets it holds to the end of the statement, however that ends.
create function suisha.await_session(lock bigint) returns boolean
language plpgsql
as $$
begin
    perform pg_catalog.pg_advisory_xact_lock_shared(lock);
    return true;
exception
    when lock_not_available then
        return false;
end
$$;
