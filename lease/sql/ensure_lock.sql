-- Serializes everybody who creates or checks the rows of one subscription,
-- until the transaction ends. keiro plans the same key.
select pg_advisory_xact_lock(hashtextextended('keiro_shard:' || @subscription::text, 0))
