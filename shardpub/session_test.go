package shardpub_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/suisha-go/suisha/internal/pgserver"
	"github.com/suisha-go/suisha/internal/pgtest"
	"github.com/suisha-go/suisha/lease"
	"github.com/suisha-go/suisha/shardpub"
)

// locks are the session locks that the workers say they hold.
func (r *rig) locks() []int64 {
	return ask[[]int64](r, `select coalesce(array_agg(distinct lock), '{}') from suisha.workers where lock is not null`)
}

const endSessionOf = `select pg_terminate_backend(pid) from pg_locks
	where locktype = 'advisory' and granted and mode = 'ExclusiveLock' and (classid::bigint << 32 | objid::bigint) = $1
		and database = (select oid from pg_database where datname = current_database())`

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
		return len(r.locks()) == 2 && ask[int](r, `select count(distinct owner_worker_id)::int from keiro.keiro_subscription_shards`) == 2
	})
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
		return len(r.locks()) == 2 && ask[int](r, `select count(distinct owner_worker_id)::int from keiro.keiro_subscription_shards`) == 2
	})
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
		return len(r.locks()) == 2 && ask[int](r, `select count(distinct owner_worker_id)::int from keiro.keiro_subscription_shards`) == 2
	})
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
