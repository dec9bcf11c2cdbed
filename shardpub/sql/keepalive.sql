-- When the server gives up the session of a process that it does not hear any
-- more: after $1 seconds and three questions, and data that is not acknowledged
-- after $2 ms. A line that is broken is not a dead process, so that is later
-- than its leases run out (P-16). And what it asks is planned once, not five times for
-- its arguments: a beat takes 4 ms to plan, and whoever just joined waits for it.
select
    set_config('tcp_keepalives_idle', $1, false),
    set_config('tcp_keepalives_interval', '5', false),
    set_config('tcp_keepalives_count', '3', false),
    set_config('tcp_user_timeout', $2, false),
    set_config('plan_cache_mode', 'force_generic_plan', false)
