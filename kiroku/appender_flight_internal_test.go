package kiroku

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

func TestALoneAppendWaitsForNobodyAndOthersGoTogetherWhenItIsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1, 2)
		f := &fakeStore{before: g.pass}
		c := &calls{a: NewAppender(f)}
		c.start(t.Context(), one("a"))
		synctest.Wait()
		if got := f.statements(); got != "[1]" {
			t.Errorf("sent %s, want the first at once", got)
		}
		for i := range 5 {
			c.start(t.Context(), one(fmt.Sprint("b", i)))
			synctest.Wait()
		}
		if got := f.statements(); got != "[1]" {
			t.Errorf("sent %s while the first is under way", got)
		}
		g.open[1] <- nil
		synctest.Wait()
		if got := f.statements(); got != "[1 5]" {
			t.Errorf("sent %s, want the five together", got)
		}
		g.open[2] <- nil
		c.wait()
		if err := errors.Join(c.errs...); err != nil || f.total() != 6 {
			t.Errorf("%d events, %v", f.total(), err)
		}
		start := time.Now()
		c.start(t.Context(), one("a"))
		synctest.Wait()
		c.wait()
		if got := f.statements(); got != "[1 5 1]" || time.Since(start) > 0 {
			t.Errorf("sent %s, the last after %v", got, time.Since(start))
		}
		c.a.Wait()
		if l := c.a.common; len(c.a.held)+len(l.trips)+len(l.waiting) > 0 {
			t.Errorf("left behind: %+v, %v", l, c.a.held)
		}
	})
}

func TestACallerWhoGoesWhileItWaitsIsNotWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1)
		f := &fakeStore{before: g.pass}
		c := &calls{a: NewAppender(f)}
		c.start(t.Context(), one("a"))
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		gone := c.start(ctx, one("gone"))
		synctest.Wait()
		c.start(t.Context(), one("b"))
		synctest.Wait()
		cancel()
		synctest.Wait()
		if err := c.err(gone); !errors.Is(err, context.Canceled) || !pgconn.SafeToRetry(err) {
			t.Errorf("%v, want Canceled at once, and that nothing was sent", err)
		}
		g.open[1] <- nil
		c.wait()
		if f.versions["gone"] != 0 || f.versions["a"] != 1 || f.versions["b"] != 1 {
			t.Errorf("written %v", f.versions)
		}
	})
}

func TestACallerWhoGoesUnderWayLeavesTheOthersAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1, 2)
		f := &fakeStore{before: g.pass}
		c := &calls{a: NewAppender(f)}
		c.start(t.Context(), one("a"))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		gone := c.start(ctx, one("gone"))
		synctest.Wait()
		stays := c.start(t.Context(), one("b"))
		synctest.Wait()
		g.open[1] <- nil
		<-ctx.Done()
		synctest.Wait()
		if err := c.err(gone); !errors.Is(err, context.DeadlineExceeded) || pgconn.SafeToRetry(err) {
			t.Errorf("%v, want DeadlineExceeded at once, and no word on the outcome", err)
		}
		if !errors.Is(c.err(stays), errNotFaked) {
			t.Errorf("the other one returned %v", c.err(stays))
		}
		g.open[2] <- nil
		c.wait()
		if c.err(stays) != nil || f.versions["b"] != 1 {
			t.Errorf("the other one: %v, %v", c.err(stays), f.versions)
		}
	})
}

func TestAStatementIsCancelledWhenItsLastCallerGoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var deadline time.Duration
		g := newGate(1, 2)
		f := &fakeStore{before: func(ctx context.Context, n int) error {
			if d, ok := ctx.Deadline(); ok && n == 2 {
				deadline = time.Until(d)
			}
			return g.pass(ctx, n)
		}}
		c := &calls{a: NewAppender(f)}
		c.start(t.Context(), one("a"))
		synctest.Wait()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		long, cancelLong := context.WithTimeout(t.Context(), time.Minute)
		defer cancelLong()
		c.start(short, one("b"))
		synctest.Wait()
		c.start(long, one("c"))
		synctest.Wait()
		g.open[1] <- nil
		synctest.Wait()
		if deadline != time.Minute {
			t.Errorf("deadline in %v, want the last caller's", deadline)
		}
		<-short.Done()
		synctest.Wait()
		cancelLong()
		c.wait()
		c.a.Wait() // for the statement, which has nobody left
		if f.versions["b"]+f.versions["c"] != 0 {
			t.Errorf("written %v", f.versions)
		}
	})
}

func TestAStatementThatIsSlowIsOvertakenOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1, 4)
		f := &fakeStore{before: g.pass}
		c := &calls{a: NewAppender(f)}
		start := time.Now()
		c.start(t.Context(), one("slow"))
		synctest.Wait()
		if _, err := c.a.Append(t.Context(), one("b")); err != nil || time.Since(start) != overtakeAfter {
			t.Errorf("the first one behind: %v after %v", err, time.Since(start))
		}
		start = time.Now()
		if _, err := c.a.Append(t.Context(), one("b")); err != nil || time.Since(start) > 0 {
			t.Errorf("the second one behind: %v after %v, want it to find the way free", err, time.Since(start))
		}
		for range 5 { // these would wait for the same lock
			c.start(t.Context(), one("slow"))
			synctest.Wait()
		}
		time.Sleep(time.Second)
		if got := f.statements(); got != "[1 1 1 1]" {
			t.Errorf("sent %s, want one that waits for all five", got)
		}
		if _, err := c.a.Append(t.Context(), one("b"), one("c")); err != nil || time.Since(start) > time.Second {
			t.Errorf("beside them: %v after %v", err, time.Since(start))
		}
		g.open[1] <- nil
		g.open[4] <- nil
		c.wait()
		if err := errors.Join(c.errs...); err != nil || f.total() != 10 || f.statements() != "[1 1 1 1 1 4]" {
			t.Errorf("%d events in %s, %v", f.total(), f.statements(), err)
		}
		c.a.Wait()
		if l := c.a.common; len(c.a.held)+len(l.trips)+len(l.slow)+l.overtaken > 0 {
			t.Errorf("left behind: %+v, %v", l, c.a.held)
		}
	})
}

func TestStatementsThatDoNotComeBackAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13)
		f := &fakeStore{before: g.pass}
		c := &calls{a: NewAppender(f)}
		c.start(t.Context(), one("first"))
		synctest.Wait()
		for range 20 {
			for i := range 3 {
				c.start(t.Context(), one(fmt.Sprint("s", i)))
			}
			time.Sleep(overtakeAfter + time.Millisecond)
		}
		synctest.Wait()
		if got := len(f.sent); got != 1+mostOvertaken+1 {
			t.Errorf("%d statements: %s", got, f.statements())
		}
		for _, ch := range g.open {
			close(ch)
		}
		c.wait()
		if err := errors.Join(c.errs...); err != nil || f.total() != 61 {
			t.Errorf("%d events, %v", f.total(), err)
		}
	})
}

func TestASecondStatementGoesBesideTheFirstWhenEnoughWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1, 2)
		f := &fakeStore{before: g.pass}
		c := &calls{a: NewAppender(f)}
		c.start(t.Context(), one("a"))
		synctest.Wait()
		for i := range 20 {
			c.start(t.Context(), one([]string{"a", "b", "c"}[i%3]))
			synctest.Wait()
		}
		// With the sixteenth that waits, ten go. Those to "a" wait for the first, and
		// what comes later for one of the two.
		if got := f.statements(); got != "[1 10]" {
			t.Errorf("sent %s", got)
		}
		g.open[1] <- nil
		g.open[2] <- nil
		c.wait()
		if err := errors.Join(c.errs...); err != nil || f.total() != 21 || len(f.sent) > 4 {
			t.Errorf("%d events in %s, %v", f.total(), f.statements(), err)
		}
	})
}

// Callers that come back a moment after they were served go with those who waited
// meanwhile, not after them.
func TestThoseWhoWereServedGoWithThoseWhoWaited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const callers, each = 8, 20
		f := &fakeStore{before: func(context.Context, int) error { time.Sleep(2 * time.Millisecond); return nil }}
		a := NewAppender(f)
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				for range each {
					if _, err := a.Append(t.Context(), one(fmt.Sprint("s", i))); err != nil {
						t.Error(err)
					}
					time.Sleep(time.Duration(i+1) * 10 * time.Microsecond)
				}
			})
		}
		all.Wait()
		a.Wait()
		if most := each + each/4; len(f.sent) > most || f.total() != callers*each {
			t.Errorf("%d events in %d statements, want %d at the most", f.total(), len(f.sent), most)
		}
	})
}
