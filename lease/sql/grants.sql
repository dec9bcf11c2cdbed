-- What the role of a worker needs.
grant usage on schema keiro, suisha to %[1]s;
grant select, insert, update on keiro.keiro_subscription_shards to %[1]s;
grant select, insert, update on suisha.subscriptions to %[1]s;
grant select, insert, update, delete on suisha.workers to %[1]s;
grant select, insert, delete on suisha.ownership_log to %[1]s;
grant select, insert, update, delete on suisha.acks to %[1]s;
grant select on suisha.migrations to %[1]s;
