-- One at a time may migrate.
select pg_advisory_xact_lock(hashtextextended('suisha.migrations', 0))
