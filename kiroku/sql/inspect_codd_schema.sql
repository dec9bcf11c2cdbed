-- The migrations in the ledger of an older codd, kiroku's and others'.
select name
from codd_schema.sql_migrations
order by name;
