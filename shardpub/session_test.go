package shardpub_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/suisha-go/suisha/internal/pgserver"
	"github.com/suisha-go/suisha/internal/pgtest"
	"github.com/suisha-go/suisha/lease"
	"github.com/suisha-go/suisha/shardpub"
)

// twoShare: two processes have a session, and two buckets each.
func (r *rig) twoShare() bool {
	r.t.Helper()
	return len(r.locks()) == 2 && ask[int](r, `select count(*)::int from (select from keiro.keiro_subscription_shards where owner_worker_id is not null group by owner_worker_id having count(*) = 2) as even`) == 2
}

// locks are the session locks that the workers say they hold.
func (r *rig) locks() []int64 {
	return ask[[]int64](r, `select coalesce(array_agg(distinct lock), '{}') from suisha.workers where lock is not null`)
}

const endSessionOf = `select pg_terminate_backend(pid) from pg_locks
	where locktype = 'advisory' and granted and mode = 'ExclusiveLock' and (classid::bigint << 32 | objid::bigint) = $1
		and database = (select oid from pg_database where datname = current_database())`

// watched waits until all sessions are waited for, by a server that has not just
// started: that marks nobody.
func (r *rig) watched() {
	r.t.Helper()
	r.until("each session is watched", func() bool {
		return ask[bool](r, `select clock_timestamp() - pg_postmaster_start_time() > interval '3 seconds' and count(distinct lock) > 1 and count(distinct lock) = (
				select count(distinct (l.classid, l.objid)) from pg_locks l
				where l.locktype = 'advisory' and not l.granted and l.mode = 'ShareLock'
					and l.database = (select oid from pg_database where datname = current_database()))
			from suisha.workers where lock is not null`)
	})
}

// Every process has a lock that says that its session lives, and says which
// (P-13): once a notification reached it from another connection (P-17).
func TestSessionsHoldALockThatOthersKnow(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.subscribe(r.subscriber(shards(4)), orders)
	r.subscribe(r.elsewhere(shards(4)), orders)
	r.until("both say so", func() bool { return len(r.locks()) == 2 })
	for _, lock := range r.locks() {
		if free := ask[bool](r, fmt.Sprintf(`select pg_try_advisory_xact_lock(%d)`, lock)); free {
			t.Errorf("nobody holds the lock %d", lock)
		}
	}
}

// A process without a session says that it has none, and works.
func TestProcessWithoutASessionHoldsNoLock(t *testing.T) {
	t.Parallel()
	r := newRig(t, quick, func(c *shardpub.NodeConfig) { c.DisableSession = true })
	messages := r.subscribe(r.subscriber(), orders)
	r.appendTo("orders-1", 1)
	receive(t, messages).Ack()
	if locks := r.locks(); len(locks) != 0 {
		t.Errorf("locks %v", locks)
	}
}

// After its session ended nothing is handed out before a new one is there: another
// process may have taken this one for dead (P-15).
func TestNothingIsHandedOutWithoutASession(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := &wire{}
	node, _ := r.newNode(w.pool(r), patientLease)
	messages := r.subscribe(r.subscriber(on(node)), orders)
	r.appendTo("orders-1", 3)
	first := receive(t, messages)
	r.until("its lock is known", func() bool { return len(r.locks()) == 1 })
	w.cut()
	time.Sleep(200 * time.Millisecond)
	first.Ack()
	select {
	case m := <-messages:
		t.Errorf("position %d was handed out", deliveryOf(t, m).Position)
		m.Ack()
	case <-time.After(time.Second):
	}
	w.mend()
	receive(t, messages).Ack()
	receive(t, messages).Ack()
	r.reaches(3)
}

// A session that is ended and comes back costs no bucket (P-14, P-15).
func TestEndedSessionThatComesBackLosesNoBucket(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	serve(r.subscribe(r.subscriber(shards(4)), orders), func(*message.Message) error { return nil })
	serve(r.subscribe(r.elsewhere(shards(4)), orders), func(*message.Message) error { return nil })
	owners := func() string {
		return ask[string](r, `select coalesce(string_agg(owner_worker_id::text, ',' order by bucket), '') from keiro.keiro_subscription_shards`)
	}
	r.until("they share", func() bool {
		return r.twoShare()
	})
	r.watched()
	before := owners()
	for _, lock := range r.locks() {
		r.exec(endSessionOf, lock)
	}
	time.Sleep(2500 * time.Millisecond)
	if gone := ask[int](r, `select count(*)::int from suisha.workers where gone_at is not null`); gone != 0 || owners() != before {
		t.Errorf("%d are marked as gone, and the buckets went from %s to %s", gone, before, owners())
	}
	r.appendRound(orders, 20)
	r.until("all are handled", func() bool { return r.covered(4) == 20 })
}

// A server that restarts ends every session and proves nothing: nobody is marked,
// no bucket changes hands (P-16).
func TestRestartOfTheServerMarksNobody(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, pgserver.Options{})
	r := &rig{t: t, pool: migrated(t, server)}
	r.node, r.said = r.newNode(r.pool)
	serve(r.subscribe(r.subscriber(shards(4)), orders), func(*message.Message) error { return nil })
	serve(r.subscribe(r.elsewhere(shards(4)), orders), func(*message.Message) error { return nil })
	r.until("they share", func() bool {
		return r.twoShare()
	})
	r.watched()
	before, moved := r.locks(), len(r.said.observed(shardpub.BucketRevoked))
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.pool.Reset()
	r.appendRound(orders, 20)
	r.until("all are handled", func() bool { return r.covered(4) == 20 })
	r.until("the locks are held again", func() bool { return slices.Equal(r.locks(), before) })
	time.Sleep(2 * time.Second)
	if n := ask[int](r, `select count(*)::int from suisha.ownership_log where reason = 'gone'`); n != 0 {
		t.Errorf("%d buckets were taken from workers that live", n)
	}
	if n := len(r.said.observed(shardpub.BucketRevoked)) - moved; n != 0 {
		t.Errorf("%d buckets were revoked", n)
	}
}

// Who claims by a mark is told apart in the log of owners (P-14).
func TestBucketsOfAProcessThatDiesAreTakenWithinSeconds(t *testing.T) {
	t.Parallel()
	r := newRig(t) // leases of 30 s
	w := &wire{}
	node, _ := r.newNode(w.pool(r), func(c *shardpub.NodeConfig) { c.Lease = lease.Config{} })
	serve(r.subscribe(r.subscriber(on(node), shards(4)), orders), func(*message.Message) error { return nil })
	r.until("the first owns all", func() bool { return r.owned() == 4 })
	serve(r.subscribe(r.subscriber(shards(4)), orders), func(*message.Message) error { return nil })
	r.until("they share", func() bool {
		return r.twoShare()
	})
	r.watched()
	w.cut() // as far as the server sees, it died
	died := time.Now()
	r.appendRound(orders, 40)
	r.until("the other handles all", func() bool { return r.covered(4) == 40 })
	if took := time.Since(died); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
	if n := ask[int](r, `select count(*)::int from suisha.ownership_log where reason = 'gone'`); n != 2 {
		t.Errorf("%d buckets were taken by the mark", n)
	}
	w.mend()
}

// A line that leads nowhere any more is no death: the server keeps the session, nobody
// marks its process, and its buckets go when their leases have run out (P-16).
func TestHalfOpenSessionIsNoDeath(t *testing.T) {
	t.Parallel()
	const ttl = 4 * time.Second
	r := newRig(t)
	w := &wire{}
	node, _ := r.newNode(w.pool(r), func(c *shardpub.NodeConfig) { c.Lease = lease.Config{TTL: ttl, RenewInterval: time.Second} })
	serve(r.subscribe(r.subscriber(on(node), shards(4)), orders), func(*message.Message) error { return nil })
	r.until("the first owns all", func() bool { return r.owned() == 4 })
	serve(r.subscribe(r.subscriber(shards(4)), orders), func(*message.Message) error { return nil })
	r.until("they share", r.twoShare)
	r.watched()
	w.vanish()
	vanished := time.Now()
	reasons := func(reason string) int {
		return ask[int](r, fmt.Sprintf(`select count(*)::int from suisha.ownership_log where reason = '%s'`, reason))
	}
	r.until("its buckets are taken", func() bool { return reasons("expired") == 2 })
	if took := time.Since(vanished); took < ttl/2 {
		t.Errorf("it took %s only", took)
	}
	if gone, marked := reasons("gone"), ask[int](r, `select count(*)::int from suisha.workers where gone_at is not null`); gone+marked > 0 {
		t.Errorf("%d buckets were taken by a mark, %d workers are marked", gone, marked)
	}
	if held := ask[int](r, `select count(*)::int from pg_locks where locktype = 'advisory' and granted and mode = 'ExclusiveLock'
		and objsubid = 1 and database = (select oid from pg_database where datname = current_database())`); held != 2 {
		t.Errorf("%d sessions hold a lock, want that of the lost one, too", held)
	}
	w.cut() // the server hears of it at last
	w.mend()
}

// Whatever way a pool is configured to send statements, a worker lives on it: reads,
// checkpoints, dead letters, releases, and the watch.
func TestWorkersLiveInEveryExecMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			cfg := r.pool.Config()
			cfg.ConnConfig.DefaultQueryExecMode = mode
			w := &wire{}
			dying, _ := r.newNode(w.over(t, cfg.Copy()), patientLease)
			node, said := r.newNode(newPool(t, cfg))
			once := retry(shardpub.RetryPolicy{MaxDeliveries: 1})
			serve(r.subscribe(r.subscriber(on(dying), once, shards(4)), orders), func(*message.Message) error { return nil })
			r.until("it owns all", func() bool { return r.owned() == 4 })
			sub := r.subscriber(on(node), once, shards(4))
			serve(r.subscribe(sub, orders), func(m *message.Message) error {
				if deliveryOf(t, m).Version == 2 {
					return errBoom
				}
				return nil
			})
			r.until("they share", func() bool { return len(sub.Status()[0].Lease.Held) == 2 })
			r.watched()
			w.cut()
			r.until("the other owns all", func() bool { return len(sub.Status()[0].Lease.Held) == 4 })
			r.appendRound(orders, 8)
			r.appendTo("orders-3", 1)
			r.until("all are handled", func() bool { return r.covered(4) == 9 && len(r.letters()) > 0 })
			if err := sub.Close(); err != nil {
				t.Error(err)
			}
			if errs := said.errors(); len(errs) > 0 {
				t.Errorf("%v", errs)
			}
			w.mend()
		})
	}
}
