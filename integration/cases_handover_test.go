package integration_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// Case 21: after SIGTERM no delivery begins, those under way end and count, and
// the process is gone before its drain timeout.
func TestAfterSIGTERMNothingBeginsAndWhatRunsEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workerSpec{Shards: 8, Drain: 20 * time.Second, SlowType: "Slow", Slow: 1500 * time.Millisecond, Retry: onlyOnce})
	streams := w.streamsIn()
	a := w.start("a")
	w.finish(time.Minute)
	before := w.calls()
	var slow []string // three for each bucket, of which one at a time is out
	for range 3 {
		slow = append(slow, streams...)
	}
	w.appendKind(slow, "Slow")
	w.eventually(time.Minute, "a handler runs in each bucket", func() bool { return w.calls() >= before+8 })
	a.signal(syscall.SIGTERM)
	begun := w.calls()
	if begun != before+8 {
		t.Fatalf("%d calls of 8: the machine is too slow for this test", begun-before)
	}
	signalled := time.Now()
	a.ends(t, 30*time.Second)
	if took := time.Since(signalled); took > w.base.Drain/2 {
		t.Errorf("it left after %s", took)
	}
	if n := w.calls() - begun; n != 0 {
		t.Errorf("%d deliveries began after the signal", n)
	}
	if n := w.count(`select count(*) from calls where ended is distinct from 'done'`); n != 0 {
		t.Errorf("%d handlers did not end in peace", n)
	}
	if n := w.owned(); n != 0 {
		t.Errorf("%d buckets are still owned", n)
	}
	w.start("b", func(s *workerSpec) { s.Slow = time.Millisecond })
	w.finish(time.Minute)
	w.onceInOrder()
}

// Case 25: one bucket's process is killed in the middle of an event while the
// others went far ahead: that bucket goes on where it was, and no other goes back.
func TestBucketOfAKilledHandlerResumesAtItsEventWhileOthersAreAhead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workerSpec{Shards: 5, TTL: 2 * time.Second, Renew: 500 * time.Millisecond})
	streams := w.streamsIn()
	for _, stream := range streams {
		w.many(stream, "Good", 150)
	}
	crash := fmt.Sprint(streams[2], "@", 40)
	a := w.start("a", func(s *workerSpec) { s.BlockAt = crash })
	const ahead = `select count(*) from kiroku.subscriptions c where c.subscription_name = 'group' and c.last_seen >= (
		select max(position) from calls where calls.bucket = c.consumer_group_member and version > 150)`
	w.eventually(time.Minute, "the others are done and saved", func() bool {
		return w.handled() >= w.events()-(w.count(`select stream_version from kiroku.streams where stream_name = $1`, streams[2])-39) && w.count(ahead) == 4
	})
	a.kill()
	w.start("b")
	w.finish(time.Minute)
	if first := w.count(`select version from calls where worker = 'b' and bucket = 2 order by id limit 1`); first != 40 {
		t.Errorf("bucket 2 went on at event %d, want 40", first)
	}
	if n := w.count(`select count(*) from calls where worker = 'b' and bucket <> 2`); n != 0 {
		t.Errorf("%d events of other buckets came again", n)
	}
	if r, d := w.repeated(), w.disordered(); r != 1 || d != 0 {
		t.Errorf("%d repeated, want the one that was in hand; %d out of order", r, d)
	}
}

// Cases 25 and 26: after a panic of a handler the same event comes again, in the
// same bucket and to the same worker, before anything behind it.
func TestEventWhoseHandlerPanicsComesAgainBeforeTheRestOfItsStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workerSpec{Shards: 5})
	streams := w.streamsIn()
	w.base.PanicAt = fmt.Sprint(streams[2], "@", 40)
	w.start("a")
	w.start("b")
	w.eventually(time.Minute, "they share", func() bool { return w.even("a", "b") && w.settled() })
	for _, stream := range streams {
		w.many(stream, "Good", 150)
	}
	w.finish(time.Minute)
	calls := w.count(`select count(*) from calls where stream = $1 and version = 40`, streams[2])
	if workers := w.count(`select count(distinct worker) from calls where stream = $1 and version > 1`, streams[2]); calls != 2 || workers != 1 {
		t.Errorf("%d calls for the event that failed; %d workers had its stream", calls, workers)
	}
	if n := w.count(`select count(*) from calls where stream = $1 and version > 40 and id < (
		select max(id) from calls where stream = $1 and version = 40)`, streams[2]); n != 0 {
		t.Errorf("%d events went past the one that failed", n)
	}
	if n := w.calls() - w.events(); n != 1 || w.disordered() != 0 {
		t.Errorf("%d calls too many, want 1; %d out of order", n, w.disordered())
	}
}

// Case 36: a worker is killed while one event is in hand and the others of its
// stream are read ahead: the next one gets them all.
func TestWhatWasReadAheadComesAgainAfterSIGKILL(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workerSpec{Shards: 1, TTL: 2 * time.Second, Renew: 500 * time.Millisecond})
	w.many("orders-1", "Good", 100)
	a := w.start("a", func(s *workerSpec) { s.BlockAt = "orders-1@1" })
	w.eventually(time.Minute, "the first is in hand", func() bool { return w.calls() == 1 })
	time.Sleep(300 * time.Millisecond) // the rest is read in one page with it
	a.kill()
	if at := w.count(`select last_seen from kiroku.subscriptions where subscription_name = 'group'`); at != 0 {
		t.Errorf("checkpoint %d", at)
	}
	w.start("b")
	w.finish(time.Minute)
	if n := w.count(`select count(*) from calls where worker = 'b'`); n != 100 || w.disordered() != 0 {
		t.Errorf("%d events came, want 100; %d out of order", n, w.disordered())
	}
}
