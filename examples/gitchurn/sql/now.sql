-- The time by the clock that the calls are noted with.
select clock_timestamp()
