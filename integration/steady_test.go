package integration_test

import (
	"flag"
	"fmt"
	"testing"
	"time"
)

var steadyFor = flag.Duration("steady", 10*time.Second, "how long nothing may move while nobody comes or goes; 10m gives the figure of docs/RELIABILITY.md")

// Case 2: at most one move of each bucket when somebody comes, and none while
// nobody does (P-10).
func TestBucketMovesAtMostOncePerChangeAndNeverInBetween(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		shards int
		names  []string
	}{
		{4, []string{"a", "b"}},
		{7, []string{"a", "b", "c"}},
	} {
		t.Run(fmt.Sprintf("%d of %d", len(c.names), c.shards), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, workerSpec{Shards: c.shards, Work: time.Millisecond})
			stop := w.keepLoaded(w.streamsPerBucket(2))
			for i, name := range c.names {
				began := w.moment()
				w.start(name)
				w.eventually(time.Minute, "they share", func() bool { return w.even(c.names[:i+1]...) && w.settled() })
				if n := w.count(`select coalesce(max(n), 0) from (select count(*) as n from suisha.ownership_log
					where at > $1 and to_worker is not null group by bucket) b`, began); n > 1 {
					t.Errorf("a bucket changed hands %d times when %s came", n, name)
				}
			}
			before := w.count(`select count(*) from suisha.ownership_log`)
			for began := time.Now(); time.Since(began) < *steadyFor; time.Sleep(time.Second) {
				if n := w.count(`select count(*) from suisha.ownership_log`) - before; n != 0 {
					t.Fatalf("%d changes %s after the last worker came", n, time.Since(began))
				}
			}
			stop()
			w.finish(time.Minute)
			w.onceInOrder()
		})
	}
}
