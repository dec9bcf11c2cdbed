-- Wakes the readers of category $1 as an append does.
select pg_notify('kiroku.events', $1::text || '-0,2,1')
