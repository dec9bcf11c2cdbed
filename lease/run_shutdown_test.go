package lease_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/suisha-go/suisha/lease"
)

func TestShutdownDrainsAllAtOnceAndRenewsMeanwhile(t *testing.T) { // L-1F, P-18
	t.Parallel()
	inBubble(t, 4, true, func(t *testing.T, b *bubble) {
		w := b.start(1, func(_ *lease.KeeperConfig, h *holder) {
			h.onDrain = func(context.Context, *lease.Tenure, lease.Reason, func(error)) error {
				time.Sleep(45 * time.Second) // beyond the TTL
				return nil
			}
		})
		b.after(time.Second)
		other := b.start(2, func(*lease.KeeperConfig, *holder) {})
		b.after(5 * time.Second)
		tenure := w.holder.tenure(0)
		w.stop()
		b.after(44 * time.Second)
		if s := w.Status(); len(s.Draining) == 0 || !s.Leaving || !tenure.Trusted() {
			t.Errorf("status %+v, trusted %v", s, tenure.Trusted())
		}
		select {
		case <-w.done:
			t.Error("left before the drains ended")
		default:
		}
		b.after(2 * time.Second)
		select {
		case err := <-w.done:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Error("still running")
		}
		b.after(time.Second)
		b.owns(map[byte]int{2: 4})
		if !errors.Is(context.Cause(tenure.Context()), lease.ErrReleased) {
			t.Errorf("cause %v", context.Cause(tenure.Context()))
		}
		_ = other
	})
}

func TestShutdownWhileTheDatabaseIsDownEndsWithTheTrust(t *testing.T) { // P-19
	t.Parallel()
	inBubble(t, 2, true, func(t *testing.T, b *bubble) {
		never := make(chan struct{})
		w := b.start(1, func(_ *lease.KeeperConfig, h *holder) {
			h.onDrain = func(context.Context, *lease.Tenure, lease.Reason, func(error)) error {
				<-never // a Holder that keeps no deadline
				return errStuck
			}
		})
		b.after(time.Second)
		b.lines[w].set(true, nil)
		w.stop()
		b.after(31 * time.Second)
		select {
		case err := <-w.done:
			var drain *lease.DrainError
			if !errors.As(err, &drain) || !errors.Is(err, lease.ErrLost) {
				t.Errorf("got %v", err)
			}
		default:
			t.Error("still running after the trust is used up")
		}
		close(never)
	})
}

func TestDrainWhoseReleaseFailedIsFreedByALaterPass(t *testing.T) { // L-1A, S-33
	t.Parallel()
	inBubble(t, 4, true, func(t *testing.T, b *bubble) {
		first := b.start(1, func(_ *lease.KeeperConfig, h *holder) {
			h.onDrain = func(context.Context, *lease.Tenure, lease.Reason, func(error)) error { return errDown }
		})
		b.after(time.Second)
		b.start(2)
		b.after(2 * time.Second)
		b.owns(map[byte]int{1: 2, 2: 2})
		var drain *lease.DrainError
		if errs := first.reported(); len(errs) != 2 || !errors.As(errs[0], &drain) || drain.Reason != lease.Rebalanced {
			t.Errorf("reported %v", errs)
		}
		// At the end, too, nothing is kept that nobody works on (L-17).
		first.stop()
		b.after(2 * time.Second)
		b.owns(map[byte]int{2: 4})
		if err := <-first.done; !errors.As(err, &drain) || drain.Reason != lease.Shutdown {
			t.Errorf("got %v", err)
		}
	})
}
