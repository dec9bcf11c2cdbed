-- Takes the lock that says that this session lives (P-13). Not at once: another
-- session of this process may not have ended yet, as the server sees it.
select pg_try_advisory_lock($1)
