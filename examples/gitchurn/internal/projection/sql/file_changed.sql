-- Counts one change of one file, and the call. An event that was counted
-- before is not counted again: the version tells.
with call as (
    insert into demo.calls (worker, bucket, stream, version, position, attempt)
    values (@worker, @bucket, @stream, @version, @position, @attempt)
)
insert into demo.churn as known (stream, path, commits, added, deleted, version)
values (@stream, @path, 1, @added, @deleted, @version)
on conflict (stream) do update
set commits = known.commits + 1,
    added = known.added + excluded.added,
    deleted = known.deleted + excluded.deleted,
    version = excluded.version
where known.version < excluded.version
