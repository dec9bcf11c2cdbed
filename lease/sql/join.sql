-- Writes the worker's presence and tells the others. On the way out go the
-- presence of the long dead and the old end of the log: what is older than a week,
-- and more than 10,000 entries.
with me as (
    insert into suisha.workers as w (
        subscription, worker, host, pid, version, session, lock, weight, labels,
        joined_at, heartbeat_at, expires_at
    )
    values (
        @subscription::text, @worker::uuid, @host::text, @pid::int, @version::text, @lock::bigint <> 0, nullif(@lock::bigint, 0),
        @weight::int, @labels::text::jsonb, clock_timestamp(), clock_timestamp(),
        clock_timestamp() + @ttl::bigint * interval '1 millisecond'
    )
    on conflict (subscription, worker) do update
    set session = excluded.session,
        lock = excluded.lock,
        weight = excluded.weight,
        heartbeat_at = excluded.heartbeat_at,
        expires_at = excluded.expires_at,
        gone_at = null
    returning w.worker
), dead as (
    delete from suisha.workers d
    using (
        select worker
        from suisha.workers
        where subscription = @subscription::text
          and worker <> @worker::uuid
          and expires_at < clock_timestamp() - interval '1 hour'
        for update skip locked
    ) as long
    where d.subscription = @subscription::text and d.worker = long.worker
), trimmed as (
    delete from suisha.ownership_log l
    where l.subscription = @subscription::text
      and (
          l.at < clock_timestamp() - interval '7 days'
          or l.id <= (
              select o.id
              from suisha.ownership_log o
              where o.subscription = @subscription::text
              order by o.id desc
              offset 10000 limit 1
          )
      )
)
select pg_notify('keiro_shard_rebalance', @subscription::text) from me
