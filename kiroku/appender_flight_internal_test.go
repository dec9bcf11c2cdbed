package kiroku

import (
	"context"
	"errors"
	"fmt"
	"runtime"
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
		c.wg.Wait()
		if err := errors.Join(c.errs...); err != nil || f.total() != 6 {
			t.Errorf("%d events, %v", f.total(), err)
		}
		start := time.Now()
		c.start(t.Context(), one("a"))
		synctest.Wait()
		c.wg.Wait()
		if got := f.statements(); got != "[1 5 1]" || time.Since(start) > 0 {
			t.Errorf("sent %s, the last after %v", got, time.Since(start))
		}
		c.a.Wait()
		if len(c.a.held) > 0 || c.a.common.flying != 0 || len(c.a.common.waiting) > 0 {
			t.Errorf("left behind: %+v, %v", &c.a.common, c.a.held)
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
		c.wg.Wait()
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
		c.wg.Wait()
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
		c.wg.Wait()
		c.a.Wait() // for the statement, which has nobody left
		if f.versions["b"]+f.versions["c"] != 0 {
			t.Errorf("written %v", f.versions)
		}
	})
}

func TestAStatementThatIsSlowIsOvertaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
		f := &fakeStore{before: g.pass}
		c := &calls{a: NewAppender(f)}
		start := time.Now()
		c.start(t.Context(), one("slow"))
		synctest.Wait()
		g.open[2] <- nil
		ok := c.start(t.Context(), one("b"))
		synctest.Wait()
		for errors.Is(c.err(ok), errNotFaked) {
			time.Sleep(time.Millisecond)
			synctest.Wait()
		}
		if took := time.Since(start); c.err(ok) != nil || took > overtakeAfter+time.Millisecond {
			t.Errorf("%v after %v", c.err(ok), took)
		}
		for range 20 {
			c.start(t.Context(), one("b"))
			synctest.Wait()
			time.Sleep(overtakeAfter)
		}
		synctest.Wait()
		if got := len(f.sent); got != mostFlying+1 {
			t.Errorf("%d statements, want %d that do not come back and one that did", got, mostFlying)
		}
		for _, ch := range g.open {
			close(ch)
		}
		c.wg.Wait()
		if err := errors.Join(c.errs...); err != nil || f.total() != 22 {
			t.Errorf("%d events, %v", f.total(), err)
		}
	})
}

// Whatever happens below, those who wait get their turn.
func TestPanicsAndGoexitsDoNotWedgeTheQueue(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(){"panic": func() { panic("tracer") }, "Goexit": runtime.Goexit} {
		synctest.Test(t, func(t *testing.T) {
			g := newGate(1, 2)
			f := &fakeStore{before: func(ctx context.Context, n int) error {
				err := g.pass(ctx, n)
				if n <= 2 {
					end()
				}
				return err
			}}
			c := &calls{a: NewAppender(f)}
			c.start(t.Context(), one("a"))
			synctest.Wait()
			c.start(t.Context(), one("b"))
			synctest.Wait()
			c.start(t.Context(), one("c"))
			synctest.Wait()
			g.open[1] <- nil
			synctest.Wait()
			c.start(t.Context(), one("d"))
			synctest.Wait()
			g.open[2] <- nil
			c.wg.Wait()
			for _, err := range c.errs[:3] {
				if err == nil {
					t.Errorf("%s: %v, want all that it touched to know", name, c.errs)
				}
			}
			if name == "panic" && c.errs[2].Error() != "panicked: tracer" {
				t.Errorf("%v", c.errs[2])
			}
			if c.errs[3] != nil || f.versions["d"] != 1 {
				t.Errorf("%s: afterwards %v", name, c.errs[3])
			}
			c.a.Wait()
		})
	}
}

func TestAConnectionThatIsLostTellsAllAndWritesNothingTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1, 2)
		f := &fakeStore{before: g.pass}
		c := &calls{a: NewAppender(f)}
		c.start(t.Context(), one("a"))
		synctest.Wait()
		c.start(t.Context(), one("b"))
		synctest.Wait()
		c.start(t.Context(), one("c"))
		synctest.Wait()
		lost := &pgconn.PgError{SeverityUnlocalized: "FATAL", Code: "57P01"}
		g.open[1] <- nil
		g.open[2] <- lost
		c.wg.Wait()
		if c.errs[0] != nil || !errors.Is(c.errs[1], lost) || !errors.Is(c.errs[2], lost) || f.statements() != "[1 2]" {
			t.Errorf("%v, sent %s", c.errs, f.statements())
		}
	})
}
