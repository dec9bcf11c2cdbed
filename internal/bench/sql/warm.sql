-- Reads everything once.
select
    (select coalesce(sum(octet_length(e.data::text)), 0) from kiroku.events e) as events,
    (select count(*) from kiroku.stream_events se where se.stream_id = 0 and se.stream_version > 0) as placed
