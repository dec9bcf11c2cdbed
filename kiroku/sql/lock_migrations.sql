-- Waits for the lock that kiroku's own migration tool holds while it works, so
-- that the two never work at the same time. It ends with the transaction.
select pg_advisory_xact_lock(8099547378373587553);
