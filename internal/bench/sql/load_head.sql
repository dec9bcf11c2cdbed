-- The last position, locked as every writer does.
select stream_version from kiroku.streams where stream_id = 0 for no key update
