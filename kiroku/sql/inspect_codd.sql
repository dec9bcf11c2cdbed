-- The migrations in the ledger of codd, kiroku's and others'.
select name
from codd.sql_migrations
order by name;
