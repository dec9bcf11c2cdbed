-- Bounds the statements behind it in the same transaction: $1 is a new
-- lock_timeout, or null for none; $2 is the most that statement_timeout may be,
-- in milliseconds, or null: it is lowered, never raised.
select
    set_config('lock_timeout', coalesce($1::text, current_setting('lock_timeout')), true),
    set_config(
        'statement_timeout',
        coalesce(
            ceil(1000 * extract(epoch from least(
                nullif(current_setting('statement_timeout')::interval, interval '0'),
                $2::int8 * interval '1 millisecond'
            )))::int8::text,
            '0'
        ),
        true
    )
