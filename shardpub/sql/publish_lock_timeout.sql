-- Sets lock_timeout to $1 until the transaction ends; returns what it was.
with before as materialized (
    select current_setting('lock_timeout') as setting
)
select before.setting, set_config('lock_timeout', $1, true)
from before
