-- The command that closes database $1 to new sessions, so that it can be
-- cloned at any time.
select format('alter database %I with allow_connections false', $1::text)
