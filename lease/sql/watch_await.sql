-- Waits until no session holds the lock: true; or for so long: false. While it
-- waits it holds a snapshot, and what was deleted since cannot be cleaned up: so
-- the wait ends now and then.
select suisha.await_session($1)
from set_config('lock_timeout', $2, true)
