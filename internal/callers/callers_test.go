package callers_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/suisha-go/suisha/internal/callers"
)

func TestUntilLastEndsWithTheLastDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		short, cancelShort := context.WithTimeout(t.Context(), time.Second)
		defer cancelShort()
		long, cancelLong := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancelLong()
		began := time.Now()
		ctx, cancel := callers.UntilLast([]context.Context{short, long, short})
		defer cancel()
		cancelLong() // its caller is gone: the others go on
		<-ctx.Done()
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("it ended after %v", took)
		}
		endless, stop := callers.UntilLast([]context.Context{short, t.Context()})
		defer stop()
		if _, ok := endless.Deadline(); ok {
			t.Error("it has a deadline, though one of the callers has none")
		}
	})
}
