package integration_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Workers whose wall clocks are ten minutes off behave like any other: the
// database's clock judges leases (case 6, R-5).
func TestClocksTenMinutesOffChangeNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workerSpec{Shards: 8, Work: 2 * time.Millisecond})
	w.append(80, 20)
	w.start("ahead", func(s *workerSpec) { s.Shift = 10 * time.Minute })
	w.start("behind", func(s *workerSpec) { s.Shift = -10 * time.Minute })
	w.start("right")
	w.eventually(20*time.Second, "three share", func() bool { return w.even("ahead", "behind", "right") && w.settled() })
	before := w.count(`select count(*) from suisha.ownership_log`)
	w.finish(time.Minute)
	time.Sleep(2 * w.base.TTL)
	if after := w.count(`select count(*) from suisha.ownership_log`); after != before {
		t.Errorf("%d buckets moved between workers with wrong clocks", after-before)
	}
	if r, d := w.repeated(), w.disordered(); r != 0 || d != 0 {
		t.Errorf("%d repeated, %d out of order", r, d)
	}
}

// A handler that holds the only connection of the pool for three TTLs costs no
// lease (P-6, case 7, case 45).
func TestPoolHeldByAHandlerForThreeTTLsLosesNoLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workerSpec{Shards: 4, Conns: 1, TTL: 2 * time.Second, Renew: 500 * time.Millisecond, Drain: 30 * time.Second})
	w.base.Hold = 3 * w.base.TTL
	w.append(2, 1)
	w.start("a")
	w.start("b", func(s *workerSpec) { s.Hold = 0 })
	w.eventually(10*time.Second, "a handler holds a's connection", func() bool {
		return w.count(`select count(*) from pg_stat_activity where query like 'select pg_sleep%' and state = 'active'`) > 0 || w.handled() == 2
	})
	w.finish(time.Minute)
	if r := w.repeated(); r != 0 {
		t.Errorf("%d events ran twice", r)
	}
	if lost := w.count(`select count(*) from calls where ended = 'lost'`); lost != 0 {
		t.Errorf("%d handlers lost their lease", lost)
	}
	if stolen := w.count(`select count(*) from suisha.ownership_log where reason = 'expired'`); stolen != 0 {
		t.Errorf("%d leases expired", stolen)
	}
}

// A renewal that is blocked by a locked row holds up no other (P-8).
func TestLockedLeaseRowDoesNotStopTheOthersFromBeingRenewed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workerSpec{Shards: 4, Work: time.Millisecond, TTL: 2 * time.Second, Renew: 500 * time.Millisecond})
	w.append(40, 2)
	w.start("a")
	w.eventually(10*time.Second, "a owns all", func() bool { return w.even("a") })
	ctx := context.Background()
	tx, err := w.pool.BeginTx(ctx, pgx.TxOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, `select 1 from keiro.keiro_subscription_shards where bucket = 2 for update`); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	began := time.Now()
	for time.Since(began) < 3*w.base.TTL {
		if n := w.count(`select count(*) from keiro.keiro_subscription_shards where bucket <> 2 and lease_expires_at > clock_timestamp()`); n != 3 {
			t.Fatalf("only %d of the 3 other leases live after %s", n, time.Since(began))
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	w.append(40, 2)
	w.finish(time.Minute)
}

// SIGKILL: the dead worker's buckets are handled elsewhere once their leases
// have run out (S-64, case 39).
func TestBucketsOfADeadWorkerRunElsewhereWithinTTLAndASecond(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workerSpec{Shards: 8, Work: time.Millisecond})
	w.append(80, 2)
	a := w.start("a")
	w.start("b")
	w.eventually(20*time.Second, "two share", func() bool { return w.even("a", "b") })
	w.finish(time.Minute)
	a.kill()
	w.append(80, 1)
	took := w.eventually(w.base.TTL+10*time.Second, "all handled", func() bool { return w.handled() >= w.events() })
	if limit := w.base.TTL + time.Second + 500*time.Millisecond; took > limit {
		t.Errorf("failover took %s, more than %s", took, limit)
	}
}
