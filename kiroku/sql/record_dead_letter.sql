-- Records that subscription $1, member $2, gave up the event $4 at position $3,
-- with reason $5, summary $6 and attempts $7, and moves its checkpoint forward
-- to $8. A dead letter that is there already stays as it is. Returns whether
-- there is a new one.
with letter as (
    insert into kiroku.dead_letters
        (subscription_name, consumer_group_member, global_position, event_id, reason, reason_summary, attempt_count)
    values ($1, $2, $3, $4, $5::text::jsonb, $6, $7)
    on conflict (subscription_name, consumer_group_member, global_position, event_id) do nothing
    returning dead_letter_id
),

checkpoint as (
    insert into kiroku.subscriptions as s (subscription_name, consumer_group_member, last_seen, updated_at)
    values ($1, $2, $8, now())
    on conflict (subscription_name, consumer_group_member) do update
    set last_seen = greatest(s.last_seen, excluded.last_seen), updated_at = excluded.updated_at
)

select exists (select from letter);
