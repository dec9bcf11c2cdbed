-- The primary key and the checks of keiro's table, as PostgreSQL writes them.
select pg_get_constraintdef(c.oid)
from pg_constraint c
where c.conrelid = 'keiro.keiro_subscription_shards'::regclass and c.contype in ('p', 'c')
order by 1
