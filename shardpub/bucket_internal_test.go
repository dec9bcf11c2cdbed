package shardpub

import (
	"context"
	"testing"
	"time"

	"github.com/suisha-go/suisha/internal/clock"
	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/lease"
)

// still is an open bucket that nobody works on: its worker slots are taken.
func still(t *testing.T, cfg SubscriberConfig) *bucket {
	t.Helper()
	cfg.setDefaults()
	n := &Node{}
	n.feed, n.flusher = newFeed(n), newFlusher(n)
	s := &subscription{node: n, cfg: &cfg, values: t.Context(), pageRoom: cfg.BatchSize, tenures: map[*lease.Tenure]*bucket{}}
	s.share.Store(int64(cfg.PrefetchBytes))
	b := newBucket(s, lease.NewTenure(context.Background(), 0, 1, lease.NewTrust(clock.Now(), time.Hour, 0)))
	b.open(place{})
	b.told = true
	b.running = cfg.Concurrency
	return b
}

func sized(at kiroku.Position, stream int64, size int) *entry {
	return &entry{event: kiroku.RecordedEvent{Position: at, StreamID: stream}, below: at - 1, size: size}
}

// A bucket that refused an event for its size has no room until the event fits:
// the feed would read the page again and again (P-33).
func TestBucketHasNoRoomUntilTheRefusedEventFits(t *testing.T) {
	t.Parallel()
	b := still(t, SubscriberConfig{Shards: 1, PrefetchBytes: 1000})
	if !b.offer(sized(1, 1, 400)) {
		t.Fatal("the first event was refused")
	}
	out, _ := b.take()
	if b.offer(sized(2, 2, 900)) {
		t.Fatal("an event beyond the bytes was taken")
	}
	if r := b.room(); r.free > 0 {
		t.Errorf("room for %d events while the refused one does not fit", r.free)
	}
	b.settled(out, 0)
	if r := b.room(); r.free <= 0 {
		t.Error("no room though the bucket is empty")
	}
	if !b.offer(sized(2, 2, 5000)) {
		t.Error("an event larger than the bound was refused by an empty bucket")
	}
}

// With more than one stream in flight the window past an unsettled event is
// bounded: settled events count until the checkpoint has passed them.
func TestWindowPastAStuckStreamIsThePrefetchCount(t *testing.T) {
	t.Parallel()
	b := still(t, SubscriberConfig{Shards: 1, Concurrency: 4, PrefetchCount: 10, BatchSize: 1})
	b.offer(sized(1, 1, 1))
	if _, ok := b.take(); !ok {
		t.Fatal("nothing to take")
	}
	taken := 1
	for at := kiroku.Position(2); b.offer(sized(at, int64(at), 1)); at++ {
		e, ok := b.take()
		if !ok {
			t.Fatal("nothing to take")
		}
		b.settled(e, 0)
		taken++
	}
	if taken != 10 {
		t.Errorf("%d events went past a stuck one, want 10 in all", taken)
	}
	if p := b.progress(nil).mark; p != 0 {
		t.Errorf("the checkpoint is %d", p)
	}
}

// The feed is told of a bucket that ran dry: another one of its group may be
// full, and the group waits for nothing else.
func TestFeedHearsOfABucketThatRunsDry(t *testing.T) {
	t.Parallel()
	b := still(t, SubscriberConfig{Shards: 1})
	b.offer(sized(1, 1, 1))
	b.take()
	select {
	case <-b.sub.node.feed.kick:
	default:
		t.Error("the feed was not told")
	}
}
