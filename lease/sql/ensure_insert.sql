-- Records what the name means and inserts the missing rows, free. Rows that
-- exist are left as they are.
with meaning as (
    insert into suisha.subscriptions (name, target, shards, filter)
    values (@subscription::text, @target::text, @shards::int, @filter::text)
    on conflict (name) do nothing
)
insert into keiro.keiro_subscription_shards (subscription_name, bucket, shard_count)
select @subscription::text, b, @shards::int
from generate_series(0, @shards::int - 1) as b
on conflict (subscription_name, bucket) do nothing
