-- The dead letter $1.
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
where dead_letter_id = $1;
