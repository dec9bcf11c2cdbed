-- Where the buckets $2 of subscription $1 begin: their checkpoints, whether there
-- is a row of what was settled above them, and what it says, as long as the
-- checkpoint's row is the very one that was written with it (P-39). Whoever else
-- writes a checkpoint, be it at the same place, may want its events again.
select
    c.consumer_group_member,
    c.last_seen,
    a.bucket is not null,
    case when a.checkpoint = c.last_seen and a.checkpoint_at = c.updated_at then a.settled end
from kiroku.subscriptions c
left join suisha.acks a
    on a.subscription = c.subscription_name and a.bucket = c.consumer_group_member
where c.subscription_name = $1 and c.consumer_group_member = any ($2::integer[])
