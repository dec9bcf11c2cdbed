-- Moves the checkpoint of subscription $1, member $2, forward to $3, or creates
-- it there. It never goes back; the time is set in any case.
insert into kiroku.subscriptions as s (subscription_name, consumer_group_member, last_seen, updated_at)
values ($1, $2, $3, now())
on conflict (subscription_name, consumer_group_member) do update
set last_seen = greatest(s.last_seen, excluded.last_seen), updated_at = excluded.updated_at;
