package integration_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Case 5: a worker cannot renew while its handlers run on, another claims, and
// then its renewals go through again. They renew nothing that is not its own, its
// late acks change nothing, and it goes on with what it is dealt (P-8, P-23).
func TestRenewalThatComesLateRenewsNothingAndItsAckChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workerSpec{Shards: 4, TTL: 2 * time.Second, Renew: 500 * time.Millisecond, Retry: onlyOnce, SlowType: "Slow", IgnoreCtx: true})
	w.base.Slow = 3 * w.base.TTL
	for _, stream := range w.streamsIn() {
		w.write(stream, "Slow")
	}
	w.audit()
	w.start("a")
	w.eventually(time.Minute, "a handler runs in each bucket", func() bool {
		return w.count(`select count(*) from calls where ended is null`) == 4
	})
	mend := w.breakRenewals("a")
	w.start("b", func(s *workerSpec) { s.Slow = time.Millisecond })
	w.eventually(time.Minute, "b has handled what a has in hand", func() bool {
		return w.count(`select count(distinct bucket) from calls where worker = 'b' and ended = 'done'`) == 4
	})
	if n := w.count(`select count(*) from calls where worker = 'a' and ended is null`); n != 4 {
		t.Fatalf("%d handlers of a run: the machine is too slow for this test", n)
	}
	mend()
	w.eventually(time.Minute, "the handlers of a have returned", func() bool {
		return w.count(`select count(*) from calls where worker = 'a' and ended is null`) == 0
	})
	w.eventually(time.Minute, "they share", func() bool { return w.even("a", "b") })
	w.append(40, 1)
	w.finish(time.Minute)
	if n := w.zombieWrites(); n != 0 {
		t.Errorf("%d writes for buckets of another worker", n)
	}
	if n := w.count(`select count(*) from kiroku.dead_letters`); n != 0 || w.disordered() != 0 {
		t.Errorf("%d dead letters, %d out of order", n, w.disordered())
	}
	if n := w.changes("expired"); n != 4 {
		t.Errorf("%d leases were taken when they had run out, want 4", n)
	}
}

// Case 14: handlers that heed their contexts have ended before another worker
// begins, though their own could not renew: trust ends first (P-22).
func TestHandlersThatHeedTheirContextsNeverOverlapTheirSuccessors(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workerSpec{Shards: 6, TTL: 3 * time.Second, Renew: time.Second, Margin: time.Second, SlowType: "Slow"})
	w.base.Slow = 2 * w.base.TTL
	streams := w.streamsIn()
	w.start("a")
	w.start("b")
	w.eventually(time.Minute, "they share", func() bool { return w.even("a", "b") })
	w.finish(time.Minute)
	w.breakRenewals("a")
	for _, stream := range streams {
		w.write(stream, "Slow", "Good")
	}
	w.eventually(time.Minute, "b has all", func() bool { return w.even("b") })
	w.finish(time.Minute)
	if n := w.lostCalls(); n == 0 {
		t.Error("no handler was interrupted")
	}
	if n := w.overlaps(); n != 0 {
		t.Errorf("%d handlers ran beside another worker's in their bucket", n)
	}
	if d := w.disordered(); d != 0 {
		t.Errorf("%d out of order", d)
	}
}

// Case 7: two handlers fill all that may be in flight for five TTLs, and no lease
// is lost: renewals share no limit with handlers (P-6).
func TestHandlersThatFillMaxInFlightForFiveTTLsLoseNoLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workerSpec{Shards: 8, TTL: 1600 * time.Millisecond, Renew: 400 * time.Millisecond, MaxInFlight: 2, Conns: 2, SlowType: "Slow"})
	w.base.Slow = 5 * w.base.TTL
	streams := w.streamsIn()
	w.start("a")
	w.finish(time.Minute)
	w.write(streams[0], "Slow")
	w.write(streams[1], "Slow")
	w.eventually(time.Minute, "two handlers run", func() bool { return w.count(`select count(*) from calls where ended is null`) == 2 })
	w.start("b")
	w.finish(time.Minute)
	if n := w.lostCalls() + w.changes("expired", "gone", "fenced"); n != 0 {
		t.Errorf("%d leases were lost", n)
	}
	w.onceInOrder()
}

// Case 8: renewals are one statement per interval for all buckets, whatever the
// load (P-7).
func TestLeasesAreWrittenOncePerIntervalWhateverTheLoad(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workerSpec{Shards: 64})
	w.exec(`create table public.updates (at timestamptz not null default clock_timestamp())`)
	w.exec(`create function public.note_update() returns trigger language plpgsql as
		$$ begin insert into public.updates default values; return null; end $$`)
	w.exec(`create trigger note_update after update on keiro.keiro_subscription_shards
		for each statement execute function public.note_update()`)
	streams := w.streamsPerBucket(2)
	w.start("a")
	w.eventually(time.Minute, "a owns all", func() bool { return w.even("a") })
	stop := w.keepLoaded(streams)
	w.eventually(time.Minute, "it is busy", func() bool { return w.handled() > 300 })
	from, handled := w.moment(), w.handled()
	const window = 6
	time.Sleep(window * w.base.Renew)
	to, after := w.moment(), w.handled()
	stop()
	n := w.count(`select count(*) from public.updates where at between $1 and $2`, from, to)
	// An interval is shorter by a tenth at most.
	if most := int64(to.Sub(from)/(w.base.Renew*9/10)) + 1; n < window/2 || n > most {
		t.Errorf("%d updates of leases in %s, want about %d", n, to.Sub(from), window)
	}
	if after-handled < 300 {
		t.Errorf("only %d events were handled meanwhile", after-handled)
	}
	t.Logf("%d updates in %s, beside %d events", n, to.Sub(from), after-handled)
}

// Case 10: every connection is cut for two TTLs. Then every bucket is owned again
// by one worker, within a TTL and two intervals, and nothing is lost.
func TestEveryBucketIsOwnedAgainAfterAllConnectionsWereCutForTwoTTLs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workerSpec{Shards: 8, TTL: 2 * time.Second, Renew: 500 * time.Millisecond, Work: time.Millisecond})
	w.append(40, 5)
	w.start("a")
	w.start("b")
	w.eventually(time.Minute, "they share", func() bool { return w.even("a", "b") })
	w.blackout(2 * w.base.TTL)
	took := w.eventually(time.Minute, "every bucket is owned", func() bool {
		return w.count(`select count(*) from keiro.keiro_subscription_shards where lease_expires_at > clock_timestamp()`) == 8
	})
	if limit := w.base.TTL + 2*w.base.Renew; took > limit {
		t.Errorf("that took %s, more than %s", took, limit)
	}
	w.append(40, 5)
	w.finish(time.Minute)
	w.eventually(time.Minute, "they share again", func() bool { return w.even("a", "b") })
	if d := w.disordered(); d != 0 {
		t.Errorf("%d out of order", d)
	}
}

// blackout lets nobody connect to the database for a time, and ends who is.
func (w *world) blackout(d time.Duration) {
	w.t.Helper()
	ctx := context.Background()
	cfg := w.pool.Config().ConnConfig.Copy()
	name := cfg.Database
	cfg.Database = "postgres"
	admin, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = admin.Close(ctx) }()
	allow := func(yes bool) {
		if _, err := admin.Exec(ctx, fmt.Sprintf(`alter database %s with allow_connections %t`, pgx.Identifier{name}.Sanitize(), yes)); err != nil {
			w.t.Fatal(err)
		}
	}
	allow(false)
	defer func() { allow(true); w.pool.Reset() }()
	for began := time.Now(); time.Since(began) < d; time.Sleep(50 * time.Millisecond) {
		if _, err := admin.Exec(ctx, `select pg_terminate_backend(pid) from pg_stat_activity where datname = $1`, name); err != nil {
			w.t.Fatal(err)
		}
	}
}

// Case 11: survivors that hold what was their share when a third was alive take
// its buckets, too, when they have run out: shares are those of the living (P-9).
func TestSurvivorsTakeMoreThanTheirOldShareOnceALeaseHasRunOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workerSpec{Shards: 9, PollOnly: true}) // nobody sees a session end
	w.append(90, 1)
	dead := w.start("a")
	w.start("b")
	w.start("c")
	w.eventually(time.Minute, "three share", func() bool { return w.even("a", "b", "c") && w.settled() })
	died := w.moment()
	dead.kill()
	w.eventually(time.Minute, "two share", func() bool { return w.changes("expired") == 3 && len(w.owners()) == 2 })
	took := w.count(`select (extract(epoch from max(at) - $1) * 1000)::bigint from suisha.ownership_log where reason = 'expired'`, died)
	if limit := w.base.TTL + 2*w.base.Renew; took > limit.Milliseconds() {
		t.Errorf("the last was claimed %d ms after the death, more than %s", took, limit)
	}
	w.append(90, 1)
	w.finish(time.Minute)
}

// Case 12: five join at once and leave one by one. Each time, all buckets are owned
// soon, shares differ by one at most, and nobody has nothing (P-10).
func TestFiveJoinAtOnceAndLeaveOneByOneAndNobodyHasNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workerSpec{Shards: 8, Work: time.Millisecond})
	w.append(40, 2)
	var all []*worker
	var names []string
	for i := range 5 {
		names = append(names, string(rune('a'+i)))
		all = append(all, w.start(names[i]))
	}
	const soon = 3 * time.Second // three intervals
	w.eventually(time.Minute, "five are here", func() bool { return w.count(`select count(*) from suisha.workers`) == 5 })
	took := w.eventually(time.Minute, "five share", func() bool { return w.even(names...) })
	if took > soon {
		t.Errorf("five shared after %s", took)
	}
	for len(all) > 1 {
		all[0].stop(t)
		all, names = all[1:], names[1:]
		if took := w.eventually(time.Minute, fmt.Sprint(names, " share"), func() bool { return w.even(names...) }); took > soon {
			t.Errorf("%v shared after %s", names, took)
		}
	}
	w.append(40, 1)
	w.finish(time.Minute)
	w.onceInOrder()
}
