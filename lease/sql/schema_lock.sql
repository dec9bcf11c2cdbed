-- One at a time may look at the schemas and change them.
select pg_advisory_xact_lock(hashtextextended('suisha.migrations', 0))
