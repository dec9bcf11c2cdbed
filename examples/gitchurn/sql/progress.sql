-- How many events are counted.
select (select coalesce(sum(commits), 0) from demo.churn)::bigint
    + (select coalesce(sum(lines), 0) from demo.orders)::bigint
