package shardpub

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/suisha-go/suisha/kiroku"
)

func TestFlushesKeepToThePace(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, c := range []struct{ interval, since, took, want time.Duration }{
		{100 * ms, time.Hour, 0, 100 * ms},
		{100 * ms, 0, 0, 100 * ms},
		{50 * ms, 10 * ms, 0, 50 * ms},
		{ms, time.Hour, 0, ms},
		{ms, 50 * ms, 0, ms},
		{ms, 20 * ms, 0, 30 * ms},
		{ms, 0, 0, 50 * ms},
		{time.Hour, 0, 0, time.Hour},
		{100 * ms, 12 * ms, 10 * ms, 100 * ms},
		{100 * ms, 30 * ms, 25 * ms, 220 * ms},
		{100 * ms, time.Hour, 25 * ms, 100 * ms},
		{100 * ms, 3 * time.Second, 3 * time.Second, 100 * ms},
		{100 * ms, 400 * ms, 400 * ms, 600 * ms},
	} {
		if got := flushPause(c.interval, c.since, c.took); got != c.want {
			t.Errorf("flushPause(%s, %s, %s) = %s, want %s", c.interval, c.since, c.took, got, c.want)
		}
	}
}

func dirtied(b *bucket) bool {
	_, dirty := b.sub.node.flusher.dirty[b]
	return dirty
}

// A checkpoint that is far behind what was read does not wait for the sweep: the
// next owner would read all of it again.
func TestCheckpointFarBehindDoesNotWaitForTheSweep(t *testing.T) {
	t.Parallel()
	b := still(t, SubscriberConfig{Shards: 1})
	b.advance(farBehind - 1)
	if dirtied(b) {
		t.Error("it is written at every page")
	}
	b.advance(farBehind)
	if !dirtied(b) || !b.due() {
		t.Error("it waits")
	}
	b.saved(b.progress(nil))
	clear(b.sub.node.flusher.dirty)
	b.offer(sized(farBehind+1, 1, 1))
	b.advance(3 * farBehind)
	if dirtied(b) || b.due() {
		t.Error("it is written though an unsettled event holds it back")
	}
}

// What is settled above the mark is due once, though the mark stands still (P-39).
func TestSettledAboveTheMarkIsDueOnce(t *testing.T) {
	t.Parallel()
	b := still(t, SubscriberConfig{Shards: 1, Concurrency: 4})
	for at := kiroku.Position(1); at <= 3; at++ {
		e := sized(at, int64(at), 1)
		e.event.ID = uuid.New()
		b.offer(e)
	}
	first, _ := b.take()
	second, _ := b.take()
	third, _ := b.take()
	if p := b.progress(nil); p.settled != nil || b.due() {
		t.Errorf("%x is due before anything is settled", p.settled)
	}
	b.settled(second, 0)
	p := b.progress(nil)
	if known, err := decodeAcks(p.settled); err != nil || p.mark != 0 || !b.due() || len(known.at) != 1 || known.at[0] != 2 || known.last != second.event.ID {
		t.Errorf("%v, %v at %d", known, err, p.mark)
	}
	b.saved(p)
	if b.due() {
		t.Error("it is written again and again")
	}
	if p := b.progress(third); p.mark != 0 || len(p.settled) != 17+2 {
		t.Errorf("beside a letter: %x at %d", p.settled, p.mark)
	}
	b.settled(third, 0)
	b.settled(first, 0)
	if p = b.progress(nil); p.mark != 3 || p.settled == nil || len(p.settled) != 0 || !b.due() {
		t.Errorf("when all is settled: %x at %d", p.settled, p.mark)
	}
	b.saved(p)
	if p := b.progress(nil); p.settled != nil || b.due() {
		t.Errorf("%x after the row has gone", p.settled)
	}
}

// Two statements never write for one bucket at once: the older could come last
// (P-39).
func TestOneStatementAtATimeWritesForABucket(t *testing.T) {
	t.Parallel()
	b := still(t, SubscriberConfig{Shards: 1})
	b.advance(1)
	busy := 0
	count := func(*bucket) { busy++ }
	first := unsavedOf([]*bucket{b}, count)
	if second := unsavedOf([]*bucket{b}, count); len(first.buckets) != 1 || len(second.buckets) != 0 || busy != 1 {
		t.Errorf("%d and %d rows, %d busy", len(first.buckets), len(second.buckets), busy)
	}
	first.done()
	if third := unsavedOf([]*bucket{b}, count); len(third.buckets) != 1 || busy != 1 {
		t.Errorf("%d rows, %d busy", len(third.buckets), busy)
	}
}
