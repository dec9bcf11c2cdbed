-- Locks the row of a worker's presence.
select 1 from suisha.workers w where w.subscription = $1 and w.host = $2 for update
