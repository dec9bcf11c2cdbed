package kiroku

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/jackc/pgx/v5/pgconn"
)

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
			c.wait()
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
		c.wait()
		if c.errs[0] != nil || !errors.Is(c.errs[1], lost) || !errors.Is(c.errs[2], lost) || f.statements() != "[1 2]" {
			t.Errorf("%v, sent %s", c.errs, f.statements())
		}
	})
}
