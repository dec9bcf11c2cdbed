-- What a real session hears that listens to the channel (P-17).
select pg_notify($1, $2)
