-- Dead letters with an id below $1, newest first, at most $2: of subscription
-- $3, member $4 and event $5, each unless null.
select
    dead_letter_id,
    subscription_name,
    consumer_group_member,
    global_position,
    event_id,
    reason,
    reason_summary,
    attempt_count,
    created_at
from kiroku.dead_letters
where
    dead_letter_id < $1
    and ($3::text is null or subscription_name = $3)
    and ($4::int4 is null or consumer_group_member = $4)
    and ($5::uuid is null or event_id = $5)
order by dead_letter_id desc
limit $2;
