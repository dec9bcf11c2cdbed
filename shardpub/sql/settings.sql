-- What every connection of a Node runs under: the fence needs READ COMMITTED
-- (P-24), and no statement waits for a lock or an answer for ever. None is worth
-- compiling: keys by stream are guessed to cost much, and then take 120 ms more each.
select
    set_config('default_transaction_isolation', 'read committed', false),
    set_config('lock_timeout', '2s', false),
    set_config('statement_timeout', '30s', false),
    set_config('idle_in_transaction_session_timeout', '30s', false),
    set_config('jit', 'off', false)
