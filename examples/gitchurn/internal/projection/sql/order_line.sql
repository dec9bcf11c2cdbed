-- Counts one line of one order, and the call, as file_changed does.
with call as (
    insert into demo.calls (worker, bucket, stream, version, position, attempt)
    values (@worker, @bucket, @stream, @version, @position, @attempt)
)
insert into demo.orders as known (stream, lines, amount, version)
values (@stream, 1, @amount, @version)
on conflict (stream) do update
set lines = known.lines + 1,
    amount = known.amount + excluded.amount,
    version = excluded.version
where known.version < excluded.version
