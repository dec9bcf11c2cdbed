-- Where the buckets $2 of subscription $1 begin: their checkpoints and what stands
-- there, whether there is a row of what was settled above them, and what it says, as
-- long as the checkpoint's row is the very one that was written with it (P-39).
-- Whoever else writes a checkpoint, be it at the same place, may want its events
-- again. With each comes the end of the log.
select
    c.consumer_group_member,
    c.last_seen,
    e.event_id,
    a.bucket is not null,
    case when a.checkpoint = c.last_seen and a.checkpoint_at = c.updated_at then a.settled end,
    (select h.stream_version from kiroku.streams h where h.stream_id = 0)
from kiroku.subscriptions c
left join suisha.acks a
    on a.subscription = c.subscription_name and a.bucket = c.consumer_group_member
left join lateral (
    select k.event_id
    from kiroku.stream_events k
    where k.stream_id = 0 and k.stream_version = c.last_seen
) e on true
where c.subscription_name = $1 and c.consumer_group_member = any ($2::integer[])
