-- How many events the log has.
select count(*) from kiroku.stream_events where stream_id = 0
