-- Sets all checkpoints of the subscriptions $1 to position $2, back or forth.
with changed as (
    update kiroku.subscriptions
    set last_seen = $2, updated_at = now()
    where subscription_name = any ($1::text[])
    returning subscription_name, consumer_group_member, last_seen, updated_at
)

select subscription_name, consumer_group_member, last_seen, updated_at
from changed
order by subscription_name, consumer_group_member;
