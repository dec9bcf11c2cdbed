-- Notes one call of a handler, whatever was noted before.
insert into chaos.calls (worker, worker_id, bucket, stream, version, position, attempt, began)
values ($1, $2, $3, $4, $5, $6, $7, $8)
