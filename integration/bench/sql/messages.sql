-- How many messages there are.
select count(*) from watermill_orders
