package integration_test

import (
	"context"
	"encoding/json"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/shardpub"
)

// A worker that is frozen past its TTL and then thaws writes nothing: no
// checkpoint, no dead letter. Its handlers learn that the lease is lost (P-22,
// P-23, P-24, S-63, L-04).
func TestFrozenWorkerThatThawsWritesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workerSpec{
		Shards: 4, TTL: 2 * time.Second, Renew: 500 * time.Millisecond,
		Retry: shardpub.RetryPolicy{MaxDeliveries: 1}, Work: 1500 * time.Millisecond,
	})
	for i := range 16 {
		kind := []string{"Good", "Bad"}[i%2]
		_, err := kiroku.Append(context.Background(), w.pool, kiroku.StreamAppend{
			Stream: fmt.Sprintf("orders-%d", i),
			Events: []kiroku.Event{{Type: kind, Data: json.RawMessage(`{}`)}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	full := w.count(`select count(distinct (((hashtextextended(stream_id::text, 0) % 4) + 4) % 4)) from kiroku.streams where category = 'orders'`)
	// Some of its handlers look at their contexts, the others return as if nothing
	// had happened; the events of type Bad would become dead letters at once.
	frozen := w.start("frozen", func(s *workerSpec) { s.FailType, s.IgnoreCtx = "Bad", true })
	w.eventually(20*time.Second, "a handler runs in every bucket", func() bool { return w.count(`select count(distinct bucket) from calls`) == full })
	frozen.signal(syscall.SIGSTOP)
	if n := w.count(`select count(*) from kiroku.dead_letters`); n != 0 {
		t.Fatalf("%d dead letters before the freeze: the machine is too slow for this test", n)
	}
	w.start("survivor", func(s *workerSpec) { s.Work = time.Millisecond })
	w.finish(30 * time.Second)
	const state = `select coalesce(sum(last_seen), 0)::bigint from kiroku.subscriptions`
	w.eventually(10*time.Second, "the survivor's checkpoints are written", func() bool {
		return w.count(`select count(*) from kiroku.subscriptions where last_seen >= (select stream_version from kiroku.streams where stream_id = 0)`) == 4
	})
	before := w.count(state)
	frozen.signal(syscall.SIGCONT)
	w.eventually(20*time.Second, "the thawed worker has its share again", func() bool { return w.even("frozen", "survivor") })
	if after := w.count(state); after != before {
		t.Errorf("checkpoints changed from %d to %d after the thaw", before, after)
	}
	if n := w.count(`select count(*) from kiroku.dead_letters`); n != 0 {
		t.Errorf("the thawed worker wrote %d dead letters", n)
	}
	w.append(20, 2)
	w.finish(30 * time.Second)
}

func TestHandlersOfAThawedWorkerAreToldThatTheLeaseIsLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workerSpec{Shards: 2, TTL: 2 * time.Second, Renew: 500 * time.Millisecond, Work: 20 * time.Second})
	w.append(20, 1)
	frozen := w.start("frozen")
	w.eventually(20*time.Second, "a handler runs in every bucket", func() bool { return w.count(`select count(distinct bucket) from calls`) == 2 })
	frozen.signal(syscall.SIGSTOP)
	w.start("survivor", func(s *workerSpec) { s.Work = time.Millisecond })
	w.finish(30 * time.Second)
	frozen.signal(syscall.SIGCONT)
	w.eventually(10*time.Second, "both handlers saw ErrLost", func() bool {
		return w.count(`select count(*) from calls where worker = 'frozen' and ended = 'lost'`) == 2
	})
}
