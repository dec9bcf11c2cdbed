-- What the current role lacks to run subscriptions and, if $1, to append. The
-- schema itself comes first: without it nothing else counts.
with needed (kind, name, privilege, writer) as (
    values
        ('r', 'streams', 'SELECT', false),
        ('r', 'events', 'SELECT', false),
        ('r', 'stream_events', 'SELECT', false),
        ('r', 'subscriptions', 'SELECT', false),
        ('r', 'subscriptions', 'INSERT', false),
        ('r', 'subscriptions', 'UPDATE', false),
        ('r', 'dead_letters', 'SELECT', false),
        ('r', 'dead_letters', 'INSERT', false),
        ('S', 'subscriptions_subscription_id_seq', 'USAGE', false),
        ('S', 'dead_letters_dead_letter_id_seq', 'USAGE', false),
        ('r', 'streams', 'INSERT', true),
        ('r', 'streams', 'UPDATE', true),
        ('r', 'events', 'INSERT', true),
        ('r', 'stream_events', 'INSERT', true),
        ('S', 'streams_stream_id_seq', 'USAGE', true)
)

select 'schema kiroku' as object, 'USAGE' as privilege
from pg_catalog.pg_namespace s
where s.nspname = 'kiroku' and not has_schema_privilege(s.oid, 'USAGE')
union all
select 'kiroku.' || n.name, n.privilege
from needed n
join pg_catalog.pg_namespace s on s.nspname = 'kiroku'
join pg_catalog.pg_class c on c.relnamespace = s.oid and c.relname = n.name
where
    ($1 or not n.writer)
    and not case n.kind
        when 'S' then has_sequence_privilege(c.oid, n.privilege)
        else has_table_privilege(c.oid, n.privilege)
    end;
