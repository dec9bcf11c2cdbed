-- Whether a worker of the session with this lock is marked gone (P-14).
select exists (select from suisha.workers w where w.lock = $1 and w.gone_at is not null)
