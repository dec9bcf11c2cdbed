-- Whether a subscription of @shards on @category still has something to settle
-- up to @position: an event of one of its buckets above that bucket's checkpoint,
-- or @position is not in the log yet. '$all' is every category. The bucket of a
-- stream is kiroku's, and only the server evaluates the hash. The log is read
-- once, from the lowest checkpoint, until the first such event.
with place as materialized (
    select m.bucket, coalesce(c.last_seen, 0) as settled
    from generate_series(0, @shards::integer - 1) as m (bucket)
    left join kiroku.subscriptions c
        on c.subscription_name = @subscription::text and c.consumer_group_member = m.bucket
)
select
    exists (select from kiroku.streams a where a.stream_id = 0 and a.stream_version < @position::bigint)
    or exists (
        select
        from kiroku.stream_events se
        join kiroku.streams s on s.stream_id = se.original_stream_id
        join place p
            on p.bucket = ((hashtextextended(s.stream_id::text, 0) % @shards::integer) + @shards::integer) % @shards::integer
            and p.settled < se.stream_version
        where
            se.stream_id = 0
            and se.stream_version > (select min(f.settled) from place f)
            and se.stream_version <= @position::bigint
            and (@category::text = '$all' or s.category = @category::text)
    )
