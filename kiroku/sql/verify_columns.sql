-- The columns of all tables of schema kiroku.
select
    c.relname,
    a.attname,
    format_type(a.atttypid, a.atttypmod) as type,
    a.attnotnull,
    a.atthasdef or a.attidentity <> '' as filled,
    a.attgenerated <> '' as generated,
    coalesce(pg_get_expr(d.adbin, d.adrelid), '') as expression
from pg_catalog.pg_namespace n
join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relkind in ('r', 'p')
join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
left join pg_catalog.pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
where n.nspname = 'kiroku';
