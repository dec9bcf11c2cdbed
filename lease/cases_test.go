package lease_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/suisha-go/suisha/lease"
)

// Case 1: a newcomer loses its first 20 claims, because the owner of all renews
// just before each. It counts as soon as it has said that it is there, and within
// three intervals it has its half (P-9).
func TestNewcomerThatLosesTwentyClaimsHasItsHalfWithinThreeIntervals(t *testing.T) {
	t.Parallel()
	pool := database(t, 8)
	store := newStore(pool)
	first, second := newWorker(t, store, calm, 8), newWorker(t, store, calm, 8)
	pass := func(w *worker) lease.Pass {
		t.Helper()
		p, err := w.Once(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	equal(t, "the first claims", pass(first).Claimed, upTo(8))
	var wanted []lease.Wanted
	for b := range 8 {
		wanted = append(wanted, lease.Wanted{Bucket: b, Expected: first.id})
	}
	for range 20 {
		equal(t, "renewed", pass(first).Renewed, upTo(8))
		got, err := store.Claim(t.Context(), lease.Claim{Subscription: name, Shards: 8, Worker: second.id, TTL: calm.TTL, Wanted: wanted})
		if err != nil || len(got) != 0 {
			t.Fatalf("claimed %v, %v", got, err)
		}
	}
	if p := pass(second); p.Live != 2 || p.Share != 4 || len(p.Claimed) != 0 {
		t.Fatalf("the newcomer's first pass: %+v", p)
	}
	if p := pass(first); p.Live != 2 || p.Share != 4 {
		t.Errorf("the first sees %d live and a share of %d", p.Live, p.Share)
	}
	for interval := range 3 {
		time.Sleep(120 * time.Millisecond) // it is believed when it was seen twice, 100 ms apart
		given := len(pass(first).Draining)
		eventually(t, "what drains is free", func() bool { return len(owned(t, pool, first.id)) == 8-given || given == 0 })
		pass(second)
		if even(t, pool, first, second) {
			t.Logf("even after %d intervals", interval+1)
			return
		}
	}
	t.Errorf("after three intervals %d are the newcomer's, %d free", len(owned(t, pool, second.id)), len(owned(t, pool, uuid.Nil)))
}

// Nothing moves for an hour, with jittered beats and whatever weights and numbers
// there are (P-10).
func TestNothingMovesForAnHourOfSimulatedTime(t *testing.T) {
	t.Parallel()
	pools := []struct {
		shards  int
		weights []int
	}{
		{7, []int{1, 1, 1}},
		{16, []int{1, 2, 1}},
		{1, []int{1, 1}},
		{4, []int{1, 1}},
		{10, []int{3, 1, 7, 2}},
		{3, []int{1, 1, 1, 1, 1}},
		{64, []int{1, 1, 1, 1, 1}},
	}
	seeds := uint64(3)
	if schedules() < 20_000 { // slow: with the race detector
		pools, seeds = pools[:2], 1
	}
	for _, c := range pools {
		for seed := range seeds {
			s := schedule{shards: c.shards, seed: seed}
			for i, weight := range c.weights {
				s.steps = append(s.steps, event{after: time.Duration(i) * 700 * time.Millisecond, kind: joins, n: weight - 1})
			}
			if o := simulateFor(t, s, fault{}, time.Hour); o.violation != "" {
				t.Errorf("%d shards, weights %v, seed %d: %s", c.shards, c.weights, seed, o.violation)
			}
		}
	}
}
