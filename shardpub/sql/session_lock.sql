-- Takes the lock that says that this session lives (P-13), if it is a session: the
-- process behind it is the one that the connection was told of (P-17). It may not
-- get it at once: another session of this process may not have ended yet, as the
-- server sees it.
select
    case when pg_backend_pid() = $2 then pg_try_advisory_lock($1) else false end,
    pg_backend_pid() = $2
