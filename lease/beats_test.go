package lease_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/suisha-go/suisha/lease"
)

// gated is a Runner whose first statement waits until it is let through.
type gated struct {
	lease.Runner
	began  chan struct{}
	let    chan struct{}
	number atomic.Int32
}

func newGated(r lease.Runner) *gated {
	return &gated{Runner: r, began: make(chan struct{}), let: make(chan struct{})}
}

func (g *gated) Do(ctx context.Context, f func(context.Context, *pgx.Conn) error) error {
	if g.number.Add(1) == 1 {
		close(g.began)
		<-g.let
	}
	return g.Runner.Do(ctx, f)
}

func TestBeatsThatComeMeanwhileGoInOneStatement(t *testing.T) {
	t.Parallel()
	pool := database(t, 4)
	gate := newGated(lease.PoolRunner(pool))
	store, direct := lease.NewPostgres(gate), newStore(pool)
	const members = 8
	workers, seen := make([]uuid.UUID, members), make([]lease.Snapshot, members)
	of := func(i int) string { return fmt.Sprintf("sub-%d", i) }
	for i := range members {
		workers[i] = uuid.New()
		s := lease.Subscription{Name: of(i), Target: "orders", Shards: 2 + i}
		if err := ensure(t.Context(), pool, s); err != nil {
			t.Fatal(err)
		}
		presence := lease.Presence{Subscription: s.Name, Identity: lease.Identity{Worker: workers[i]}, TTL: ttl, Weight: 1}
		if err := direct.Join(t.Context(), presence); err != nil {
			t.Fatal(err)
		}
		if _, err := direct.Claim(t.Context(), lease.Claim{
			Subscription: s.Name, Shards: s.Shards, Worker: workers[i], TTL: ttl, Wanted: free(0, 1),
		}); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	for i := range members {
		all.Go(func() {
			var err error
			seen[i], err = store.Beat(t.Context(), lease.Beat{
				Subscription: of(i), Shards: 2 + i, Worker: workers[i], TTL: ttl, Weight: 10 + i, Lock: int64(i) - 4,
				Leaving: i == 3, Renew: []int{0, 1, 2}, Giving: []int{i},
			})
			if err != nil {
				t.Error(err)
			}
		})
		if i == 0 {
			<-gate.began
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	all.Go(func() {
		_, err := store.Beat(gone, lease.Beat{Subscription: name, Shards: 4, Worker: workers[0], TTL: ttl, Weight: 1})
		if err == nil {
			t.Error("a beat whose caller is gone was sent")
		}
	})
	eventually(t, "all wait", func() bool { return store.BeatsWaiting() == members })
	cancel()
	eventually(t, "all but one wait", func() bool { return store.BeatsWaiting() == members-1 })
	close(gate.let)
	all.Wait()
	if n := gate.number.Load(); n != 2 {
		t.Errorf("%d statements, want one for the first beat and one for the rest", n)
	}
	for i, s := range seen {
		equal(t, "renewed", s.Renewed, []int{0, 1})
		if len(s.Rows) != 2+i || len(s.Workers) != 1 || s.Rows[0].Owner != workers[i] || s.Rows[1].Bucket != 1 || !s.Joined || len(s.Foreign) > 0 {
			t.Errorf("beat %d: %+v", i, s)
			continue
		}
		w := s.Workers[0] // as it was before this beat
		if w.ID != workers[i] || w.Weight != 1 {
			t.Errorf("beat %d: %+v", i, w)
		}
	}
	for i := range members {
		again := lease.Beat{Subscription: of(i), Shards: 2 + i, Worker: workers[i], TTL: ttl, Weight: 1}
		s, err := direct.Beat(t.Context(), again)
		if err != nil || len(s.Workers) != 1 {
			t.Fatal(s, err)
		}
		w := s.Workers[0]
		if w.Weight != 10+i || w.Lock != int64(i)-4 || w.Leaving != (i == 3) || len(w.Giving) != 1 || w.Giving[0] != i {
			t.Errorf("beat %d wrote %+v", i, w)
		}
	}
}

func TestErrorOfASharedBeatIsEverybodys(t *testing.T) {
	t.Parallel()
	pool := database(t, 4)
	gate := newGated(lease.PoolRunner(pool))
	store := lease.NewPostgres(gate)
	var all sync.WaitGroup
	var failed atomic.Int32
	for i := range 4 {
		all.Go(func() {
			_, err := store.Beat(t.Context(), lease.Beat{Subscription: name, Shards: 4, Worker: uuid.New(), TTL: ttl, Weight: 1})
			if err != nil {
				failed.Add(1)
			}
		})
		if i == 0 {
			<-gate.began
		}
	}
	eventually(t, "three wait", func() bool { return store.BeatsWaiting() == 3 })
	exec(t, pool, "alter table suisha.workers rename to hidden")
	close(gate.let)
	all.Wait()
	if n := failed.Load(); n != 4 {
		t.Errorf("%d of 4 beats failed", n)
	}
}

func TestDeadlineOfOneBeatIsNotThatOfTheOthers(t *testing.T) {
	t.Parallel()
	pool := database(t, 4)
	gate := newGated(lease.PoolRunner(pool))
	store := lease.NewPostgres(gate)
	send := func(ctx context.Context) chan error {
		came := make(chan error, 1)
		go func() {
			_, err := store.Beat(ctx, lease.Beat{Subscription: name, Shards: 4, Worker: uuid.New(), TTL: ttl, Weight: 1})
			came <- err
		}()
		return came
	}
	leads := send(t.Context())
	<-gate.began
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	impatient, patient := send(short), send(t.Context())
	if err := <-impatient; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one that waited: %v", err)
	}
	close(gate.let)
	for _, came := range []chan error{leads, patient} {
		if err := <-came; err != nil {
			t.Errorf("the others: %v", err)
		}
	}
}

// A row that another transaction changes between a beat's snapshot and its lock is
// looked at again; no part of the beat may be in the way of that.
func TestBeatsGoThroughWhileRowsChangeUnderThem(t *testing.T) {
	t.Parallel()
	pool := database(t, 16)
	s := newStore(pool)
	worker := uuid.New()
	if err := s.Join(t.Context(), lease.Presence{Subscription: name, Identity: lease.Identity{Worker: worker}, TTL: ttl, Weight: 1}); err != nil {
		t.Fatal(err)
	}
	claim(t, s, 16, worker, free(upTo(16)...)...)
	until := time.Now().Add(2 * time.Second)
	var others sync.WaitGroup
	for i := range 2 {
		others.Go(func() {
			for time.Now().Before(until) {
				exec(t, pool, `update keiro.keiro_subscription_shards set updated_at = clock_timestamp() where bucket % 2 = $1`, i)
				exec(t, pool, `update suisha.workers set version = version`)
			}
		})
	}
	renewed := 0
	for time.Now().Before(until) {
		renewed += len(beat(t, s, 16, worker, upTo(16)...).Renewed)
	}
	others.Wait()
	if renewed == 0 {
		t.Error("nothing was renewed")
	}
}
