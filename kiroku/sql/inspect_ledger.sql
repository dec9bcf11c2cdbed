-- kiroku's rows in the ledger of pg-migrate.
select migration, position, encode(checksum, 'hex') as checksum, status
from pgmigrate.migrations
where component = 'kiroku'
order by position;
