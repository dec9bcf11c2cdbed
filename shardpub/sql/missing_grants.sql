-- What the current role lacks to own buckets, beside what the event store asks
-- for: each object and privilege.
with needed (object, privilege) as (
    values
        ('keiro.keiro_subscription_shards', 'SELECT'),
        ('keiro.keiro_subscription_shards', 'INSERT'),
        ('keiro.keiro_subscription_shards', 'UPDATE'),
        ('suisha.subscriptions', 'SELECT'),
        ('suisha.subscriptions', 'INSERT'),
        ('suisha.workers', 'SELECT'),
        ('suisha.workers', 'INSERT'),
        ('suisha.workers', 'UPDATE'),
        ('suisha.workers', 'DELETE'),
        ('suisha.ownership_log', 'SELECT'),
        ('suisha.ownership_log', 'INSERT'),
        ('suisha.ownership_log', 'DELETE'),
        ('suisha.acks', 'SELECT'),
        ('suisha.acks', 'INSERT'),
        ('suisha.acks', 'UPDATE'),
        ('suisha.acks', 'DELETE')
)
select n.object, n.privilege
from needed n
where not has_table_privilege(n.object::regclass, n.privilege)
