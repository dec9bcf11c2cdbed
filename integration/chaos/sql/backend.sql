-- Ends one backend of a worker or of its handlers, or all of them.
select count(pg_terminate_backend(a.pid))
from (
    select p.pid from pg_stat_activity p where p.application_name in ($1, $1 || '-handlers') order by random() limit $2
) as a
