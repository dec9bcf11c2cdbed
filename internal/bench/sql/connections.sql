-- How many clients database $1 has.
select count(*) from pg_stat_activity where datname = $1 and backend_type = 'client backend'
