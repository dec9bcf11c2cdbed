package lease_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/suisha-go/suisha/lease"
)

func TestCutWorkerLosesTrustBeforeAnybodyElseClaims(t *testing.T) { // L-04, cases 14
	t.Parallel()
	inBubble(t, 4, true, func(t *testing.T, b *bubble) {
		first := b.start(1)
		b.after(time.Second)
		second := b.start(2)
		b.after(9 * time.Second)
		tenure := second.holder.tenure(2)
		if tenure == nil || !tenure.Trusted() {
			t.Fatal("the second has no tenure")
		}
		b.lines[second].set(true, nil)
		var overlap atomic.Bool
		ctx, stop := context.WithCancel(t.Context())
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			for ctx.Err() == nil {
				if first.holder.tenure(2) != nil && tenure.Context().Err() == nil {
					overlap.Store(true)
				}
				time.Sleep(time.Millisecond)
			}
		}()
		b.after(28 * time.Second)
		if tenure.Context().Err() == nil || !errors.Is(context.Cause(tenure.Context()), lease.ErrLost) {
			t.Errorf("28 s after the last beats the tenure goes on, cause %v", context.Cause(tenure.Context()))
		}
		b.after(4 * time.Second)
		b.owns(map[byte]int{1: 4})
		stop()
		<-watched
		if overlap.Load() {
			t.Error("two tenures of one bucket at once")
		}
		// It comes back, and gets its share again.
		b.lines[second].set(false, nil)
		b.after(15 * time.Second)
		b.owns(map[byte]int{1: 2, 2: 2})
	})
}

func TestDatabaseDownForTwoTTLsCausesNoTheft(t *testing.T) { // P-11, L-10
	t.Parallel()
	inBubble(t, 8, true, func(t *testing.T, b *bubble) {
		first, second := b.start(1), b.start(2)
		b.after(5 * time.Second)
		owners := b.table.owners()
		b.lines[first].set(false, errDown)
		b.lines[second].set(false, errDown)
		b.after(60 * time.Second)
		if held := first.Status().Held; len(held) != 0 {
			t.Errorf("the first still holds %v", held)
		}
		// The first finds it back seconds before the second.
		b.lines[first].set(false, nil)
		b.after(3 * time.Second)
		b.lines[second].set(false, nil)
		b.after(2 * time.Second)
		for bucket, o := range b.table.owners() {
			if o != owners[bucket] {
				t.Errorf("bucket %d went from %v to %v", bucket, owners[bucket], o)
			}
		}
		if h1, h2 := first.Status().Held, second.Status().Held; len(h1) != 4 || len(h2) != 4 {
			t.Errorf("held after the outage: %v and %v", h1, h2)
		}
	})
}

func TestFailedBeatsAreRepeatedSoonAndReported(t *testing.T) { // P-7, S-65
	t.Parallel()
	inBubble(t, 2, true, func(t *testing.T, b *bubble) {
		w := b.start(1)
		b.after(time.Second)
		b.lines[w].set(false, errDown)
		b.after(20 * time.Second) // two thirds of the TTL
		var failure *lease.PassError
		errs := w.reported()
		if len(errs) < 10 || !errors.As(errs[0], &failure) || failure.Step != lease.StepBeat || !errors.Is(errs[0], errDown) {
			t.Fatalf("%d reports, %v", len(errs), errs)
		}
		if held := w.Status().Held; len(held) != 2 || w.Status().LastError == nil {
			t.Errorf("held %v, last error %v", held, w.Status().LastError)
		}
		tenure := w.holder.tenure(0)
		b.lines[w].set(false, nil)
		b.after(2 * time.Second)
		if !tenure.Trusted() || w.holder.tenure(0) != tenure {
			t.Error("a few failed beats lost a bucket")
		}
		if err := w.Status().LastError; err != nil {
			t.Errorf("last error %v", err)
		}
	})
}

func TestNothingIsClaimedBeforeTheDatabaseIsThere(t *testing.T) { // P-4
	t.Parallel()
	inBubble(t, 2, true, func(t *testing.T, b *bubble) {
		w := b.add(1)
		b.lines[w].set(false, errDown)
		w.start(t)
		b.after(time.Minute)
		b.lines[w].set(false, nil)
		b.after(2 * time.Second)
		b.owns(map[byte]int{1: 2})
	})
}

func TestHooksCannotStallOrStopTheLoop(t *testing.T) { // L-1B, S-53
	t.Parallel()
	inBubble(t, 2, true, func(t *testing.T, b *bubble) {
		stuck := make(chan struct{})
		var panics, calls atomic.Int32
		w := b.start(1, func(c *lease.KeeperConfig, _ *holder) {
			c.Observe = func(lease.Event) {
				if calls.Add(1) == 1 {
					panic("boom")
				}
				<-stuck
			}
			c.OnError = func(_ context.Context, err error) {
				var hook *lease.HookError
				if errors.As(err, &hook) && hook.Hook == "Observe" {
					panics.Add(1)
				}
				panic("boom again")
			}
		})
		b.after(45 * time.Second)
		b.owns(map[byte]int{1: 2})
		if s := w.Status(); s.Trust < 15*time.Second {
			t.Errorf("trust left %v", s.Trust)
		}
		close(stuck)
		b.after(time.Second)
		if panics.Load() != 1 {
			t.Errorf("%d panics reported", panics.Load())
		}
	})
}

// late is a store whose first answer to a claim comes late, also to those who would
// not wait: a process that stood still reads it then.
type late struct {
	lease.Store
	by   time.Duration
	once atomic.Bool
}

func (l *late) Claim(_ context.Context, c lease.Claim) ([]int, error) {
	got, err := l.Store.Claim(context.Background(), c)
	if !l.once.Swap(true) {
		time.Sleep(l.by)
	}
	return got, err
}

func TestAnswerThatComesLateIsTrustedForNoLonger(t *testing.T) { // P-22, P-23
	t.Parallel()
	const trusted = 28 * time.Second // the TTL less the margin, from when the claim was sent
	late := func(t *testing.T, b *bubble, by time.Duration) *worker {
		t.Helper()
		w := newWorker(t, &late{Store: &line{table: b.table}, by: by}, lease.Config{}, 2)
		w.SetRandom(func() float64 { return 0.5 })
		w.start(t)
		b.after(by - time.Microsecond)
		return w
	}
	t.Run("half a second is left", func(t *testing.T) {
		t.Parallel()
		inBubble(t, 2, true, func(t *testing.T, b *bubble) {
			w := late(t, b, trusted-500*time.Millisecond)
			b.after(2 * time.Microsecond)
			tenure := w.holder.tenure(0)
			if tenure == nil {
				t.Fatal("it has no tenure")
			}
			b.after(500 * time.Millisecond)
			if tenure.Context().Err() == nil {
				t.Errorf("the tenure goes on, trusted for %v", tenure.Left())
			}
		})
	})
	t.Run("nothing is left, and the next beat finds the buckets", func(t *testing.T) {
		t.Parallel()
		inBubble(t, 2, true, func(t *testing.T, b *bubble) {
			w := late(t, b, trusted)
			b.after(2 * time.Microsecond)
			if tenure := w.holder.tenure(0); tenure != nil {
				t.Fatalf("it has a tenure, trusted for %v", tenure.Left())
			}
			var failure *lease.PassError
			if errs := w.reported(); len(errs) != 1 || !errors.As(errs[0], &failure) || failure.Step != lease.StepClaim {
				t.Errorf("reported %v", errs)
			}
			b.after(time.Second)
			if tenure := w.holder.tenure(0); tenure == nil || tenure.Left() < trusted-time.Second {
				t.Errorf("a second later the tenure is %v", tenure)
			}
		})
	})
	t.Run("nothing is left, and it leaves", func(t *testing.T) {
		t.Parallel()
		inBubble(t, 2, true, func(t *testing.T, b *bubble) {
			w := late(t, b, trusted)
			w.stop()
			b.after(time.Second)
			if err := <-w.done; err != nil {
				t.Errorf("it ends with %v", err)
			}
			b.owns(map[byte]int{0: 2})
		})
	})
}
