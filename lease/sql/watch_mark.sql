-- Marks workers gone whose session has ended and not come back: its lock is still
-- free, and they have not beaten since they were suspected. A server that has
-- just started proves nothing, nor does one that started after their last beat:
-- all sessions ended (P-16). Tells the others.
with free as (
    select pg_try_advisory_xact_lock_shared($1)
        and clock_timestamp() - pg_postmaster_start_time() > interval '3 seconds' as certain
), marked as (
    update suisha.workers w
    set gone_at = clock_timestamp()
    from free f,
        unnest($2::text[], $3::text[]::uuid[], $4::bigint[]) as s (subscription, worker, heartbeat)
    where f.certain
        and w.subscription = s.subscription
        and w.worker = s.worker
        and (extract(epoch from w.heartbeat_at) * 1000000)::bigint = s.heartbeat
        and w.lock = $1
        and w.gone_at is null
        and w.heartbeat_at > pg_postmaster_start_time()
    returning w.subscription, w.worker
), told as (
    select pg_notify('keiro_shard_rebalance', m.subscription)
    from (select distinct subscription from marked) m
)
select m.worker, (select count(*) from told)
from marked m
order by m.worker
