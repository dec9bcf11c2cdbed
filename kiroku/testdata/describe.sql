-- Everything in schema kiroku, a line per fact, as the golden file has it.
with classes as (
    select c.* from pg_class c where c.relnamespace = 'kiroku'::regnamespace
)
select line from (
    select 1 as part, '' as object, 0 as place, 'schema: ' || obj_description('kiroku'::regnamespace, 'pg_namespace') as line
    union all
    select 2, c.relname, 0, format('relation %s kind %s options %s', c.relname, c.relkind, coalesce(c.reloptions::text, '-'))
    from classes c where c.relkind in ('r', 'v', 'S')
    union all
    select 3, c.relname, a.attnum, format('column %s.%s %s%s%s%s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
        case when a.attnotnull then ' not null' else '' end,
        case a.attgenerated when 's' then ' generated' else '' end,
        coalesce(' ' || pg_get_expr(d.adbin, d.adrelid), ''))
    from classes c
    join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
    where c.relkind in ('r', 'v')
    union all
    select 4, k.conname || c.relname, 0, format('constraint %s on %s %s', k.conname, c.relname, pg_get_constraintdef(k.oid))
    from classes c join pg_constraint k on k.conrelid = c.oid where k.contype in ('p', 'u', 'c', 'f')
    union all
    select 5, c.relname, 0, pg_get_indexdef(c.oid)
    from classes c where c.relkind = 'i'
    union all
    select 6, t.tgname || c.relname, 0, pg_get_triggerdef(t.oid)
    from classes c join pg_trigger t on t.tgrelid = c.oid where not t.tgisinternal
    union all
    select 7, p.proname, 0, format('function %s(%s) returns %s language %s volatility %s', p.proname,
        pg_get_function_arguments(p.oid), pg_get_function_result(p.oid), l.lanname, p.provolatile)
    from pg_proc p join pg_language l on l.oid = p.prolang where p.pronamespace = 'kiroku'::regnamespace
    union all
    select 8, '', 0, 'stream ' || concat_ws(',', stream_id, stream_name, category, stream_version) from kiroku.streams
    union all
    select 9, '', 0, format('coordinator %s', singleton) from kiroku.history_retention_coordinator
    union all
    select 10, '', 0, format('streams_stream_id_seq %s %s', last_value, is_called) from kiroku.streams_stream_id_seq
) facts
order by part, object collate "C", place
