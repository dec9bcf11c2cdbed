-- What was given up, and why: nothing, unless a handler failed.
select count(*), coalesce(min(reason_summary), '') from kiroku.dead_letters
