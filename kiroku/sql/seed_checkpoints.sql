-- Creates the missing checkpoints of subscription $1, members 0 to $2 - 1, and
-- returns all that this statement can see. $3 says where: 0 at position $4, 1
-- at the head if the subscription has no checkpoint at all, else at 0, 2 nowhere.
with existing as materialized (
    select consumer_group_member, last_seen
    from kiroku.subscriptions
    where subscription_name = $1
),

origin as materialized (
    select
        case
            when $3::int2 = 0 then $4::int8
            when exists (select from existing) then 0
            else h.stream_version
        end as position
    from kiroku.streams h
    where h.stream_id = 0 and $3::int2 <> 2
),

seeded as (
    insert into kiroku.subscriptions (subscription_name, consumer_group_member, last_seen, updated_at)
    select $1, m.member, origin.position, now()
    from generate_series(0, $2::int4 - 1) as m (member)
    cross join origin
    where not exists (select from existing e where e.consumer_group_member = m.member)
    order by m.member
    on conflict (subscription_name, consumer_group_member) do nothing
    returning consumer_group_member, last_seen
)

select consumer_group_member, last_seen
from existing
union all
select consumer_group_member, last_seen
from seeded;
