-- How many jobs there are.
select count(*) from river_job
