-- As after some time in service.
vacuum (analyze) watermill_orders
