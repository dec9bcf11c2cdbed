-- How often each statement ran in database $1.
select s.query, sum(s.calls)::int8
from pg_stat_statements s
join pg_database d on d.oid = s.dbid
where d.datname = $1
group by s.query
