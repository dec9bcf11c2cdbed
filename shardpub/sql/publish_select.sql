-- Fails, and says why: the event store is not read through watermill-sql.
select encode(''::bytea, 'suisha: watermill-sql''s Subscriber cannot read the event store; use shardpub.NewSubscriber')
