package lease_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/suisha-go/suisha/lease"
)

// hung is a store whose beats hang once it is told to.
type hung struct {
	lease.Store
	mu    sync.Mutex
	hangs bool
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
