-- How many events were handled or given up, and how far the slowest checkpoint is.
select
    (select count(*) from (
        select c.position from chaos.calls c union select d.global_position from kiroku.dead_letters d
    ) as done),
    (select coalesce(min(s.last_seen), 0) from kiroku.subscriptions s where s.subscription_name = $1)
