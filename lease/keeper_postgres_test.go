package lease_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/lease"
)

// poll beats often enough for a test without notifications.
var poll = lease.Config{TTL: 5 * time.Second, RenewInterval: 200 * time.Millisecond}

// even reports whether exactly these workers own all rows, in shares that differ
// by at most one.
func even(t testing.TB, pool *pgxpool.Pool, workers ...*worker) bool {
	t.Helper()
	all := rows(t, pool)
	counts := map[uuid.UUID]int{}
	for _, r := range all {
		counts[r.Owner.UUID]++
	}
	total := 0
	for _, w := range workers {
		n := counts[w.id]
		if n < len(all)/len(workers) || n > (len(all)+len(workers)-1)/len(workers) {
			return false
		}
		total += n
	}
	return total == len(all)
}

func TestLoneWorkerOwnsAllInOnePass(t *testing.T) { // S-35
	t.Parallel()
	pool := database(t, 64)
	w := newWorker(t, newStore(pool), lease.Config{}, 64)
	began := time.Now()
	pass, err := w.Once(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "claimed", pass.Claimed, upTo(64))
	equal(t, "owned", owned(t, pool, w.id), upTo(64))
	if took := time.Since(began); took > time.Second {
		t.Errorf("took %v", took)
	}
}

func TestJoinersOfASaturatedPoolGetExactSharesByPollingAlone(t *testing.T) { // L-01, S-38
	t.Parallel()
	for _, n := range []int{1, 7, 8} {
		pool := database(t, n)
		store := newStore(pool)
		workers := []*worker{newWorker(t, store, poll, n).start(t)}
		eventually(t, "the first owns all", func() bool { return even(t, pool, workers...) })
		for len(workers) < 4 {
			workers = append(workers, newWorker(t, store, poll, n).start(t))
			eventually(t, "exact shares", func() bool { return even(t, pool, workers...) })
		}
		moves := 0
		for _, w := range workers {
			assigned, _, _ := w.holder.counts()
			moves += assigned
		}
		// The first claimed n; each joiner got at most its share.
		if most := n + n/2 + n/3 + n/4 + 3; moves > most {
			t.Errorf("N=%d: %d claims, want at most %d", n, moves, most)
		}
		// A leaver's buckets are redistributed.
		workers[0].stop()
		if err := <-workers[0].done; err != nil {
			t.Error(err)
		}
		eventually(t, "exact shares of those who stay", func() bool { return even(t, pool, workers[1:]...) })
		for _, w := range workers {
			for _, err := range w.reported() {
				t.Logf("N=%d: reported %v", n, err)
			}
		}
	}
}

func TestNothingMovesInASteadyState(t *testing.T) {
	t.Parallel()
	pool := database(t, 7)
	store := newStore(pool)
	var workers []*worker
	for range 3 {
		workers = append(workers, newWorker(t, store, calm, 7))
	}
	round := func() (moved int) {
		for _, w := range workers {
			pass, err := w.Once(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			moved += len(pass.Claimed) + len(pass.Draining) + len(pass.Lost) + len(pass.Released)
		}
		return moved
	}
	eventually(t, "even", func() bool { round(); return even(t, pool, workers...) && round() == 0 })
	for i := range 60 {
		if n := round(); n != 0 {
			t.Fatalf("round %d moved %d buckets", i, n)
		}
	}
}

func TestDeadWorkerIsTakenOverAfterItsTTL(t *testing.T) { // S-64, cases 11
	t.Parallel()
	pool := database(t, 8)
	store := newStore(pool)
	dead := newWorker(t, store, quick, 8)
	if _, err := dead.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	stopped := time.Now()
	equal(t, "dead owns", owned(t, pool, dead.id), upTo(8))
	heir := newWorker(t, store, quick, 8).start(t)
	eventually(t, "the heir owns all", func() bool { return len(owned(t, pool, heir.id)) == 8 })
	if took := time.Since(stopped); took < quick.TTL {
		t.Errorf("taken after %v, before the TTL", took)
	}
	// The dead one wakes: it learns that all is lost (S-24), and claims nothing
	// of the other's.
	pass, err := dead.Once(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "lost", pass.Lost, upTo(8))
}

func TestGracefulLeaveFreesAllAtOnce(t *testing.T) { // S-55, T-12
	t.Parallel()
	pool := database(t, 4)
	w := newWorker(t, newStore(pool), lease.Config{}, 4).start(t) // TTL 30 s
	eventually(t, "owns all", func() bool { return len(owned(t, pool, w.id)) == 4 })
	w.stop()
	select {
	case err := <-w.done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(3 * time.Second):
		t.Fatal("still running after 3 s")
	}
	equal(t, "free", owned(t, pool, uuid.Nil), upTo(4))
	var left int
	if err := pool.QueryRow(t.Context(), `select count(*) from suisha.workers`).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d presence rows left, %v", left, err)
	}
	if err := w.Run(t.Context()); !errors.Is(err, lease.ErrUsed) {
		t.Errorf("second Run: %v", err)
	}
	if _, err := w.Once(t.Context()); !errors.Is(err, lease.ErrUsed) {
		t.Errorf("Once after Run: %v", err)
	}
}

func TestMoreWorkersThanBuckets(t *testing.T) {
	t.Parallel()
	pool := database(t, 2)
	store := newStore(pool)
	var workers []*worker
	for range 4 {
		workers = append(workers, newWorker(t, store, poll, 2).start(t))
	}
	eventually(t, "one each for two of them", func() bool {
		all := rows(t, pool)
		return all[0].Owner.Valid && all[1].Owner.Valid && all[0].Owner != all[1].Owner
	})
	// Those without are present, and take over when there is something.
	all := rows(t, pool)
	for _, w := range workers {
		if w.id == all[0].Owner.UUID || w.id == all[1].Owner.UUID {
			w.stop()
			<-w.done
		}
	}
	eventually(t, "the others take over", func() bool {
		all := rows(t, pool)
		return all[0].Owner.Valid && all[1].Owner.Valid && all[0].Owner != all[1].Owner
	})
}

func TestPresenceOfWorkersThatOwnNothing(t *testing.T) { // L-01, cases 1
	t.Parallel()
	pool := database(t, 2)
	store := newStore(pool)
	first, second := newWorker(t, store, calm, 2), newWorker(t, store, calm, 2)
	if _, err := first.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := second.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	equal(t, "second owns", owned(t, pool, second.id), nil)
	pass, err := first.Once(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if pass.Live != 2 || pass.Share != 1 {
		t.Errorf("the first sees %d live and a share of %d", pass.Live, pass.Share)
	}
}

func TestResignedBucketGoesToAnother(t *testing.T) {
	t.Parallel()
	pool := database(t, 2)
	store := newStore(pool)
	first := newWorker(t, store, poll, 2).start(t)
	second := newWorker(t, store, poll, 2).start(t)
	eventually(t, "one each", func() bool { return even(t, pool, first, second) })
	mine := owned(t, pool, first.id)[0]
	eventually(t, "it is handed over", func() bool { return first.holder.tenure(mine) != nil })
	eventually(t, "it resigns", func() bool { return first.Resign(t.Context(), first.holder.tenure(mine), time.Minute) })
	if first.Resign(t.Context(), lease.NewTenure(t.Context(), mine, 99, lease.Trust{}), time.Minute) {
		t.Error("a tenure that is not the Keeper's was resigned")
	}
	eventually(t, "swapped", func() bool {
		b := owned(t, pool, first.id)
		return len(b) == 1 && b[0] != mine && even(t, pool, first, second)
	})
}

// session is a connection that listens, as a worker's own does.
func notified(t testing.TB, pool *pgxpool.Pool, w *worker) {
	t.Helper()
	conn, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig.Copy())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), `listen `+lease.Channel); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			if _, err := conn.WaitForNotification(ctx); err != nil {
				return
			}
			w.Wake()
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		_ = conn.Close(context.WithoutCancel(t.Context()))
	})
}

func TestFourStartedTogetherAreEvenSoonWithDefaults(t *testing.T) {
	t.Parallel()
	pool := database(t, 64)
	store := newStore(pool)
	began := time.Now()
	var workers []*worker
	for range 4 {
		w := newWorker(t, store, lease.Config{}, 64)
		notified(t, pool, w)
		workers = append(workers, w)
	}
	for _, w := range workers {
		w.start(t)
	}
	eventually(t, "16 each", func() bool { return even(t, pool, workers...) })
	took := time.Since(began)
	t.Logf("even after %v", took)
	if took > 8*time.Second { // two seconds, but for the load; polling would take ten
		t.Errorf("took %v", took)
	}
	// A fifth joins, pushed, not polled: the next beats are 10 s away.
	began = time.Now()
	fifth := newWorker(t, store, lease.Config{}, 64)
	notified(t, pool, fifth)
	fifth.start(t)
	workers = append(workers, fifth)
	eventually(t, "exact shares", func() bool { return even(t, pool, workers...) })
	took = time.Since(began)
	t.Logf("joined after %v", took)
	if took > 8*time.Second {
		t.Errorf("took %v", took)
	}
}
