-- What is loaded is right by construction: no checks of foreign keys, no
-- notification per stream.
set local session_replication_role = replica
