-- Publishes which buckets the worker gives up, before it begins: the others
-- count them as given.
update suisha.workers
set giving = @giving::int[]
where subscription = @subscription::text and worker = @worker::uuid
