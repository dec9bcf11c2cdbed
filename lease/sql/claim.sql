-- Takes those of the wanted buckets that are free, the worker's own already, or
-- expired by the clock of the database while their owner is still the expected
-- one. The lock FOR UPDATE is what makes a change of owner visible to every
-- fenced statement (P-24); a locked row is skipped. A lease with an owner and no
-- expiry is nobody's to take (S-2A).
with wanted as (
    select w.bucket, w.expected
    from unnest(@buckets::int[], @expected::text[]::uuid[]) as w (bucket, expected)
), free as (
    select s.bucket, s.owner_worker_id as previous
    from keiro.keiro_subscription_shards s
    join wanted w on w.bucket = s.bucket
    where s.subscription_name = @subscription::text
      and s.shard_count = @shards::int
      and (
          s.owner_worker_id is null
          or s.owner_worker_id = @worker::uuid
          or (s.owner_worker_id = w.expected and s.lease_expires_at < clock_timestamp())
      )
    order by s.bucket
    for update of s skip locked
), claimed as (
    update keiro.keiro_subscription_shards s
    set owner_worker_id = @worker::uuid,
        lease_expires_at = clock_timestamp() + @ttl::bigint * interval '1 millisecond',
        heartbeat_at = clock_timestamp(),
        updated_at = clock_timestamp()
    from free f
    where s.subscription_name = @subscription::text and s.bucket = f.bucket
    returning s.bucket, f.previous
), logged as (
    insert into suisha.ownership_log (subscription, bucket, from_worker, to_worker, reason, at)
    select @subscription::text, c.bucket, c.previous, @worker::uuid,
        case
            when c.previous is null then 'free'
            when c.previous = @worker::uuid then 'resumed'
            else 'expired'
        end,
        clock_timestamp()
    from claimed c
    order by c.bucket
)
select c.bucket from claimed c order by c.bucket
