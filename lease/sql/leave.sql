-- Takes the worker off the list and tells the others. While a lease of it has
-- still to run out its row stays, as one that leaves: without it the lease would
-- look like a keiro worker's.
with owner as (
    select exists (
        select from keiro.keiro_subscription_shards s
        where s.subscription_name = @subscription::text and s.owner_worker_id = @worker::uuid
    ) as owns
), stays as (
    update suisha.workers w
    set draining = true
    from owner o
    where o.owns and w.subscription = @subscription::text and w.worker = @worker::uuid
), goes as (
    delete from suisha.workers w
    using owner o
    where not o.owns and w.subscription = @subscription::text and w.worker = @worker::uuid
)
select pg_notify('keiro_shard_rebalance', @subscription::text)
