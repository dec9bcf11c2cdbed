package integration_test

import (
	"testing"
	"time"
)

// S-60: at every moment, whatever moves or dies, no checkpoint covers an event
// that no handler has finished.
func TestCheckpointNeverCoversAnUnhandledEvent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workerSpec{
		Shards: 6, Work: 3 * time.Millisecond, TTL: 2 * time.Second, Renew: 400 * time.Millisecond, Checkpoint: 20 * time.Millisecond,
	})
	w.append(60, 30)
	gap := func() bool {
		n := w.count(`select count(*) from kiroku.subscriptions c
			join kiroku.streams s on s.category = 'orders'
				and ((((hashtextextended(s.stream_id::text, 0) % 6) + 6) % 6)) = c.consumer_group_member
			join kiroku.stream_events e on e.stream_id = 0 and e.original_stream_id = s.stream_id and e.stream_version <= c.last_seen
			where not exists (select from calls d where d.position = e.stream_version and d.ended = 'done')`)
		if n != 0 {
			t.Fatalf("checkpoints cover %d events that no handler finished\n%s", n, w.picture())
		}
		return false
	}
	during := func(what string, holds func() bool) {
		t.Helper()
		w.eventually(time.Minute, what, func() bool { return gap() || holds() })
	}
	more := func(n int64) func() bool {
		want := w.calls() + n
		return func() bool { return w.calls() >= want || w.handled() == w.events() }
	}
	a := w.start("a")
	during("a handles", more(50))
	b := w.start("b")
	during("a and b share", func() bool { return w.even("a", "b") })
	w.start("c")
	during("three share", func() bool { return w.even("a", "b", "c") })
	during("they handle", more(100))
	a.kill()
	during("two take over", func() bool { return w.even("b", "c") })
	b.stop(t)
	during("one takes over", func() bool { return w.even("c") })
	during("all are handled", func() bool { return w.handled() == w.events() })
	during("all are settled", func() bool {
		return w.count(`select count(*) from kiroku.subscriptions where last_seen >= (select stream_version from kiroku.streams where stream_id = 0)`) == 6
	})
	if n := w.disordered(); n != 0 {
		t.Errorf("%d events out of order", n)
	}
}
