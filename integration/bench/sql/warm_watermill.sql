-- Reads everything once.
select coalesce(sum(octet_length(payload::text)), 0) from watermill_orders
