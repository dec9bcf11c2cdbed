-- Takes those of the wanted buckets that are free, the worker's own already,
-- expired by the clock of the database while their owner is still the expected
-- one, or of an expected owner that is marked gone and has not renewed since the
-- bucket was seen, nor since the mark: whatever renews takes the mark away first,
-- and changes the expiry. The lock FOR UPDATE is what makes a change of owner visible to every
-- fenced statement (P-24); a locked row is skipped. A lease with an owner and no
-- expiry is nobody's to take (S-2A).
with wanted as (
    select w.bucket, w.expected, w.expiry
    from unnest(@buckets::int[], @expected::text[]::uuid[], @expiries::bigint[]) as w (bucket, expected, expiry)
), free as (
    select s.bucket, s.owner_worker_id as previous, s.lease_expires_at < clock_timestamp() as expired
    from keiro.keiro_subscription_shards s
    join wanted w on w.bucket = s.bucket
    where s.subscription_name = @subscription::text
      and s.shard_count = @shards::int
      and (
          s.owner_worker_id is null
          or s.owner_worker_id = @worker::uuid
          or (s.owner_worker_id = w.expected and s.lease_expires_at < clock_timestamp())
          or (
              w.expiry <> 0
              and s.owner_worker_id = w.expected
              and isfinite(s.lease_expires_at)
              and (extract(epoch from s.lease_expires_at) * 1000000)::bigint = w.expiry
              and exists (
                  select from suisha.workers g
                  where g.subscription = s.subscription_name and g.worker = w.expected
                    and g.gone_at > coalesce(s.heartbeat_at, '-infinity')
              )
          )
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
    returning s.bucket, f.previous, f.expired
), logged as (
    insert into suisha.ownership_log (subscription, bucket, from_worker, to_worker, reason, at)
    select @subscription::text, c.bucket, c.previous, @worker::uuid,
        case
            when c.previous is null then 'join'
            when c.previous = @worker::uuid then 'resumed'
            when c.expired then 'expired'
            else 'gone'
        end,
        clock_timestamp()
    from claimed c
    order by c.bucket
)
select c.bucket from claimed c order by c.bucket
