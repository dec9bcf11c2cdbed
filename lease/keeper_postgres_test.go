package lease_test

import (
	"context"
	"errors"
	"sync"
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
	for i, w := range workers {
		n := counts[w.id]
		if n < len(all)/len(workers) || n > (len(all)+len(workers)-1)/len(workers) {
			return false
		}
		total += n
		_ = i
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

// hung is a store whose beats hang once it is told to.
type hung struct {
	lease.Store
	mu    sync.Mutex
	hangs bool
	inner chan struct{}
}

func (h *hung) set(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hangs = on
}

func (h *hung) Beat(ctx context.Context, b lease.Beat) (lease.Snapshot, error) {
	h.mu.Lock()
	hangs := h.hangs
	h.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return lease.Snapshot{}, ctx.Err()
	}
	return h.Store.Beat(ctx, b)
}

func TestTrustEndsWhileBeatsHangAndTheBucketsComeBack(t *testing.T) { // P-22, P-23, L-04
	t.Parallel()
	pool := database(t, 3)
	store := &hung{Store: newStore(pool)}
	letGo := make(chan struct{})
	w := newWorker(t, store, quick, 3, func(_ *lease.KeeperConfig, h *holder) {
		h.onLose = func(*lease.Tenure) { <-letGo }
	}).start(t)
	eventually(t, "owns all", func() bool { a, _, _ := w.holder.counts(); return a == 3 })
	old := w.holder.tenure(1)
	store.set(true)
	eventually(t, "all lost", func() bool { _, _, l := w.holder.counts(); return l == 3 })
	if old.Trusted() || !errors.Is(context.Cause(old.Context()), lease.ErrLost) {
		t.Errorf("trusted %v, cause %v", old.Trusted(), context.Cause(old.Context()))
	}
	store.set(false)
	eventually(t, "beats again", func() bool { return w.Status().LastError == nil })
	// Nothing is claimed while the Holder still lets go (P-21).
	equal(t, "ending", w.Status().Ending, upTo(3))
	if a, _, _ := w.holder.counts(); a != 3 {
		t.Errorf("%d assigned while Lose runs", a)
	}
	close(letGo)
	eventually(t, "owns all again, as new tenures", func() bool {
		n := w.holder.tenure(1)
		return n != nil && n.ID > old.ID && n.Trusted()
	})
}

func TestHungDrainDoesNotStopTheOthers(t *testing.T) { // L-03, P-19
	t.Parallel()
	pool := database(t, 4)
	store := newStore(pool)
	release := make(chan struct{})
	first := newWorker(t, store, quick, 4, func(_ *lease.KeeperConfig, h *holder) {
		h.onDrain = func(_ context.Context, tn *lease.Tenure, _ lease.Reason, unreleased func(error)) error {
			if tn.Bucket == 3 {
				unreleased(errStuck)
				<-release
				return errStuck
			}
			return nil
		}
	}).start(t)
	eventually(t, "owns all", func() bool { return len(owned(t, pool, first.id)) == 4 })
	second := newWorker(t, store, quick, 4).start(t)
	// Bucket 3 hangs: it is not renewed, runs out and is taken; the others stay.
	eventually(t, "the second has its share", func() bool {
		return len(owned(t, pool, second.id)) == 2 && len(owned(t, pool, first.id)) == 2
	})
	if _, _, losses := first.holder.counts(); losses != 0 {
		t.Errorf("%d lost", losses)
	}
	if a, _, _ := first.holder.counts(); a != 4 {
		t.Errorf("the first claimed %d, want its first 4", a)
	}
	equal(t, "first owns", owned(t, pool, first.id), []int{0, 1})
	var drain *lease.DrainError
	eventually(t, "the hung one is reported by name", func() bool {
		for _, err := range first.reported() {
			if errors.As(err, &drain) && drain.Bucket == 3 && errors.Is(err, errStuck) {
				return true
			}
		}
		return false
	})
	close(release)
}

var errStuck = errors.New("handler is stuck")

func TestShutdownReportsWhatWasNotReleased(t *testing.T) { // P-19
	t.Parallel()
	pool := database(t, 3)
	release := make(chan struct{})
	defer close(release)
	w := newWorker(t, newStore(pool), quick, 3, func(_ *lease.KeeperConfig, h *holder) {
		h.onDrain = func(_ context.Context, tn *lease.Tenure, _ lease.Reason, unreleased func(error)) error {
			if tn.Bucket == 1 {
				unreleased(errStuck)
				<-release
			}
			return nil
		}
	}).start(t)
	eventually(t, "owns all", func() bool { return len(owned(t, pool, w.id)) == 3 })
	w.stop()
	err := <-w.done
	var drain *lease.DrainError
	if !errors.As(err, &drain) || drain.Bucket != 1 || drain.Reason != lease.Shutdown || drain.Subscription != name {
		t.Fatalf("got %v", err)
	}
	equal(t, "free", owned(t, pool, uuid.Nil), []int{0, 2})
	// The worker with a lease to run out does not look like keiro's.
	other := newWorker(t, newStore(pool), quick, 3)
	pass, err := other.Once(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if pass.Live != 2 || pass.Share != 3 {
		t.Errorf("live %d share %d, want one that leaves and a share of all", pass.Live, pass.Share)
	}
}

func TestTakenBucketIsLostAtTheNextBeat(t *testing.T) {
	t.Parallel()
	pool := database(t, 2)
	w := newWorker(t, newStore(pool), calm, 2)
	if _, err := w.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	tenure := w.holder.tenure(0)
	thief := uuid.New()
	exec(t, pool, `update keiro.keiro_subscription_shards
		set owner_worker_id = $1, lease_expires_at = now() + interval '1 minute' where bucket = 0`, thief)
	pass, err := w.Once(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "lost", pass.Lost, []int{0})
	equal(t, "renewed", pass.Renewed, []int{1})
	if !errors.Is(context.Cause(tenure.Context()), lease.ErrLost) {
		t.Errorf("cause %v", context.Cause(tenure.Context()))
	}
}

func TestLockedRowIsSkippedAndDoesNotMakeABeatWait(t *testing.T) { // P-8
	t.Parallel()
	pool := database(t, 3)
	w := newWorker(t, newStore(pool), calm, 3)
	if _, err := w.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	locked := func(mode string) lease.Pass {
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
		if _, err := tx.Exec(t.Context(), `select 1 from keiro.keiro_subscription_shards where bucket = 1 for `+mode); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		pass, err := w.Once(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("%s: took %v", mode, took)
		}
		return pass
	}
	pass := locked("update")
	equal(t, "renewed", pass.Renewed, []int{0, 2})
	equal(t, "skipped", pass.Skipped, []int{1})
	equal(t, "lost", pass.Lost, nil)
	if !w.holder.tenure(1).Trusted() {
		t.Error("a skipped bucket lost its trust")
	}
	// A fenced transaction of a handler does not make a renewal skip.
	equal(t, "renewed beside KEY SHARE", locked("key share").Renewed, upTo(3))
}

func TestBeatGoesOnWhilePresenceIsLocked(t *testing.T) {
	t.Parallel()
	pool := database(t, 1)
	w := newWorker(t, newStore(pool), calm, 1)
	if _, err := w.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), `select 1 from suisha.workers for update`); err != nil {
		t.Fatal(err)
	}
	pass, err := w.Once(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "renewed", pass.Renewed, []int{0})
}

func TestVanishedPresenceIsJoinedAgain(t *testing.T) {
	t.Parallel()
	pool := database(t, 1)
	w := newWorker(t, newStore(pool), calm, 1)
	if _, err := w.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	exec(t, pool, `delete from suisha.workers`)
	if _, err := w.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	var n int
	if err := pool.QueryRow(t.Context(), `select count(*) from suisha.workers where worker = $1`, w.id).Scan(&n); err != nil || n != 1 {
		t.Errorf("%d presence rows, %v", n, err)
	}
}

func TestUnknownRowOfOursIsClaimedAsANewTenure(t *testing.T) { // P-8
	t.Parallel()
	pool := database(t, 2)
	w := newWorker(t, newStore(pool), calm, 2)
	// A claim whose answer was lost.
	exec(t, pool, `update keiro.keiro_subscription_shards
		set owner_worker_id = $1, lease_expires_at = now() - interval '1 minute' where bucket = 1`, w.id)
	pass, err := w.Once(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "claimed", pass.Claimed, []int{0, 1})
}

func TestResignedBucketGoesToAnother(t *testing.T) {
	t.Parallel()
	pool := database(t, 2)
	store := newStore(pool)
	first := newWorker(t, store, poll, 2).start(t)
	second := newWorker(t, store, poll, 2).start(t)
	eventually(t, "one each", func() bool { return even(t, pool, first, second) })
	mine := owned(t, pool, first.id)[0]
	if !first.Resign(t.Context(), mine, time.Minute) {
		t.Fatal("not held")
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
	if took > 4*time.Second { // 2 s on a machine that is not shared
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
	if took > 4*time.Second {
		t.Errorf("took %v", took)
	}
}
