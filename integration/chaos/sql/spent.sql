-- How many transactions this database has seen, and on how many connections workers are.
select
    (select d.xact_commit + d.xact_rollback from pg_stat_database d where d.datname = current_database()),
    (select count(*) from pg_stat_activity a where a.application_name = any($1))
