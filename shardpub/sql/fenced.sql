-- Notes in the log of owners that a write for these buckets came back empty from
-- its fence: the tenure ended there. It is the only thing that a worker writes
-- about a bucket that it does not own; it changes no owner, and to_worker is whom
-- it met, null for nobody. A row that is the worker's again is left out.
with lost as (
    select w.subscription, w.bucket, w.worker, w.shards
    from unnest($1::text[], $2::integer[], $3::text[]::uuid[], $4::integer[])
        as w (subscription, bucket, worker, shards)
)
insert into suisha.ownership_log (subscription, bucket, from_worker, to_worker, reason, at)
select l.subscription, l.bucket, l.worker, s.owner_worker_id, 'fenced', clock_timestamp()
from lost l
left join keiro.keiro_subscription_shards s
    on s.subscription_name = l.subscription and s.bucket = l.bucket and s.shard_count = l.shards
where s.owner_worker_id is distinct from l.worker
order by l.subscription, l.bucket
