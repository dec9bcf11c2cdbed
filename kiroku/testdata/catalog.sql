-- Every object outside of the system's schemas, with all that could be changed
-- about it: what pg_dump would write, for machines without pg_dump.
with spaces as (
    select oid, nspname, nspacl, nspowner
    from pg_namespace
    where nspname !~ '^pg_' and nspname <> 'information_schema'
),
classes as (
    select c.*, c.oid::regclass::text as name from pg_class c join spaces n on n.oid = c.relnamespace
)
select line from (
    select concat_ws(' ', 'schema', nspname, nspacl::text, nspowner::regrole::text, obj_description(oid, 'pg_namespace')) as line
    from spaces
    union all
    select concat_ws(' ', relkind::text, name, relowner::regrole::text, relacl::text, reloptions::text, obj_description(oid, 'pg_class'),
        case when relkind in ('v', 'm') then pg_get_viewdef(oid) end, case when relkind in ('i', 'I') then pg_get_indexdef(oid) end,
        case when relkind = 'S' then pg_sequence_last_value(oid)::text end)
    from classes
    union all
    select concat_ws(' ', 'column', c.name, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attgenerated::text,
        a.attisdropped, pg_get_expr(d.adbin, d.adrelid), col_description(c.oid, a.attnum))
    from classes c
    join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
    left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
    union all
    select concat_ws(' ', 'constraint', c.name, k.conname, pg_get_constraintdef(k.oid))
    from classes c join pg_constraint k on k.conrelid = c.oid
    union all
    select concat_ws(' ', 'trigger', c.name, t.tgenabled::text, pg_get_triggerdef(t.oid))
    from classes c join pg_trigger t on t.tgrelid = c.oid where not t.tgisinternal
    union all
    select concat_ws(' ', 'function', p.proacl::text, p.proowner::regrole::text, pg_get_functiondef(p.oid))
    from pg_proc p join spaces n on n.oid = p.pronamespace
) facts
order by line collate "C"
