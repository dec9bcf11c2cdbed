-- Whether a session holds the lock now. Asking does not hold it: the lock of the
-- asking statement ends with it.
select not pg_try_advisory_xact_lock_shared($1)
