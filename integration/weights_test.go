package integration_test

import (
	"maps"
	"syscall"
	"testing"
	"time"
)

// owned waits until the buckets are shared like this, and settled.
func (w *world) shared(want map[string]int) {
	w.t.Helper()
	w.eventually(time.Minute, "the shares are right", func() bool { return maps.Equal(w.owners(), want) })
	w.eventually(time.Minute, "nothing moves", w.settled)
	if got := w.owners(); !maps.Equal(got, want) {
		w.t.Errorf("then they are %v, want %v", got, want)
	}
}

// Weights scale shares, exactly, and each change moves as few buckets as there are
// to move: under load nothing is lost, repeated or out of order (P-10).
func TestWeightsScaleSharesAndEachChangeMovesTheFewestBuckets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workerSpec{Shards: 16, Work: 2 * time.Millisecond})
	streams := w.streamsPerBucket(3)
	stop := w.keepLoaded(streams)
	claims := func() int64 { return w.changes("join") }
	weight := func(n int) func(*workerSpec) { return func(s *workerSpec) { s.Weight = n } }
	a := w.start("a", weight(1))
	w.shared(map[string]int{"a": 16})
	// Quotas of 16 by weight, rounded down, and the rest by the largest remainder.
	for _, step := range []struct {
		change func()
		want   map[string]int
		moves  int64 // from those who have too much, or leave
	}{
		{func() { w.start("b", weight(2)) }, map[string]int{"a": 5, "b": 11}, 11},
		{func() { w.start("c", weight(1)) }, map[string]int{"a": 4, "b": 8, "c": 4}, 4},
		{func() { a.stop(t) }, map[string]int{"b": 11, "c": 5}, 4},
	} {
		shed, claimed := w.changes("shed", "shutdown"), claims()
		step.change()
		w.shared(step.want)
		if n := w.changes("shed", "shutdown") - shed; n != step.moves {
			t.Errorf("%v: %d buckets were given up, want %d", step.want, n, step.moves)
		}
		if n := claims() - claimed; n != step.moves {
			t.Errorf("%v: %d buckets were claimed, want %d", step.want, n, step.moves)
		}
	}
	stop()
	w.finish(time.Minute)
	w.onceInOrder()
	if n := w.changes("shed", "shutdown", "join"); n != w.count(`select count(*) from suisha.ownership_log`) {
		t.Errorf("not all of %d changes were planned", n)
	}
}

// A draining worker sheds everything while it lives: the others take each bucket
// as soon as its handler has returned, and what still runs keeps its lease. Nothing
// moves between the others (P-18).
func TestDrainingWorkerShedsEverythingWhileItLives(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workerSpec{
		Shards: 12, TTL: 2 * time.Second, Renew: 500 * time.Millisecond, Drain: time.Minute,
		Work: 2 * time.Millisecond, SlowType: "Slow",
	})
	w.base.Slow = 3 * w.base.TTL
	streams := w.streamsIn()
	w.start("a")
	b := w.start("b")
	w.start("c")
	w.eventually(time.Minute, "three share", func() bool { return w.even("a", "b", "c") && w.settled() })
	w.finish(time.Minute)
	slow := w.count(`select min(s.bucket) from keiro.keiro_subscription_shards s join suisha.workers p on p.worker = s.owner_worker_id where p.host = 'b'`)
	stop := w.keepLoaded(streams)
	w.write(streams[slow], "Slow")
	w.eventually(time.Minute, "one handler of b takes long", func() bool {
		return w.count(`select count(*) from calls where worker = 'b' and bucket = $1 and ended is null and at < clock_timestamp() - interval '200 ms'`, slow) == 1
	})
	shed := w.changes("shed")
	b.signal(syscall.SIGTERM)
	w.eventually(w.base.TTL+10*time.Second, "the others have the rest", func() bool {
		o := w.owners()
		return o["b"] == 1 && o["a"]+o["c"] == 11
	})
	if n := w.count(`select count(*) from suisha.workers where host = 'b' and draining and expires_at > clock_timestamp()`); n != 1 {
		t.Error("b is not there, or does not say that it drains")
	}
	w.eventually(time.Minute, "they handle what was b's", func() bool {
		return w.count(`select count(distinct bucket) from calls where worker <> 'b' and bucket in (
			select bucket from suisha.ownership_log where reason = 'shutdown')`) == 3
	})
	select {
	case <-b.exit:
		t.Error("b is gone already: that showed nothing")
	default:
	}
	b.ends(t, time.Minute)
	w.eventually(time.Minute, "two share", func() bool { return w.even("a", "c") })
	stop()
	w.finish(time.Minute)
	w.onceInOrder()
	if n, l := w.changes("shutdown"), w.changes("expired", "gone", "fenced"); n != 4 || l != 0 || w.changes("shed") != shed {
		t.Errorf("%d buckets were given up, want 4; %d lost, %d moved between the others", n, l, w.changes("shed")-shed)
	}
}
