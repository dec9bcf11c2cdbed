package lease_test

import (
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/suisha-go/suisha/lease"
)

// Whatever the sessions are, each is watched by exactly one other (P-13).
func TestEverySessionIsWatchedByOne(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		locks := rapid.SliceOfNDistinct(rapid.Int64().Filter(func(n int64) bool { return n != 0 }), 1, 12, rapid.ID).Draw(t, "locks")
		var workers []lease.Worker
		for _, lock := range locks {
			for range rapid.IntRange(1, 3).Draw(t, "workers") {
				workers = append(workers, lease.Worker{ID: uuid.New(), Lock: lock, Left: 1})
			}
		}
		workers = append(workers, lease.Worker{ID: uuid.New(), Left: 1}, lease.Worker{ID: uuid.New(), Lock: 1 << 40, Left: 1, Gone: true})
		for range rapid.IntRange(0, 6).Draw(t, "long dead") {
			workers = append(workers, lease.Worker{ID: uuid.New(), Lock: rapid.Int64().Draw(t, "lock"), Left: -1})
		}
		watched := map[int64]int{}
		for _, own := range locks {
			next := lease.Successor(own, workers)
			if len(locks) == 1 && next != 0 || len(locks) > 1 && (next == 0 || next == own) {
				t.Fatalf("%d watches %d", own, next)
			}
			watched[next]++
		}
		for _, lock := range locks {
			if n := watched[lock]; len(locks) > 1 && n != 1 {
				t.Fatalf("%d is watched by %d", lock, n)
			}
		}
		if lease.Successor(0, workers) != 0 {
			t.Fatal("whoever has no session watches nobody")
		}
	})
}
