-- Notes when a worker was killed.
insert into chaos.kills (worker, at) values ($1, $2)
