-- The columns of keiro's table as they are: name, type, whether null is refused,
-- and default.
select a.attname::text, format_type(a.atttypid, a.atttypmod), a.attnotnull,
    coalesce(pg_get_expr(d.adbin, d.adrelid), '')
from pg_attribute a
left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
where a.attrelid = 'keiro.keiro_subscription_shards'::regclass
  and a.attnum > 0
  and not a.attisdropped
order by a.attnum
