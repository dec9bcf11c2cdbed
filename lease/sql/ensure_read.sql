-- What the name means so far, and the numbers of shards its rows carry.
select
    r.target,
    r.filter,
    r.shards,
    coalesce((
        select array_agg(distinct s.shard_count order by s.shard_count)
        from keiro.keiro_subscription_shards s
        where s.subscription_name = @subscription::text
    ), '{}')::int[] as counts
from (select 1) as one
left join suisha.subscriptions r on r.name = @subscription::text
