package lease

import (
	"time"

	"github.com/suisha-go/suisha/internal/clock"
)

const (
	wakesAtMost  = 4                     // beats a second that somebody woke
	wakeGap      = 20 * time.Millisecond // between two of them
	failedCeil   = time.Second
	settleDelay  = settleTime + 20*time.Millisecond
	retryFloor   = 50 * time.Millisecond
	retryCeil    = time.Second
	retryShifts  = 5
	expiryJitter = 50 * time.Millisecond
)

// outlook is what the time of the next pass depends on.
type outlook struct {
	// failed: the pass did not get through.
	failed bool
	// missed counts the passes in a row whose claims came back short.
	missed int
	// settling: a drain waits for its receiver to be seen twice.
	settling bool
	// ripens is the time until the next foreign lease expires or may be
	// claimed; not positive when there is none.
	ripens time.Duration
	// random is in [0, 1) and places the jitter.
	random float64
}

// nextPass is how long to wait for the next pass if nothing wakes the worker
// (P-7).
func nextPass(renew time.Duration, o outlook) time.Duration {
	if o.failed {
		return scale(min(failedCeil, renew), 0.25+0.75*o.random)
	}
	next := scale(renew, 0.9+0.2*o.random)
	if o.missed > 0 {
		next = min(next, retryCeil, retryFloor<<min(o.missed-1, retryShifts))
	}
	if o.settling {
		next = min(next, settleDelay)
	}
	if o.ripens > 0 {
		next = min(next, o.ripens+scale(expiryJitter, 1+o.random))
	}
	return next
}

// began remembers when the last passes began, the oldest first.
type began [wakesAtMost]time.Time

func (b *began) pass(now time.Time) {
	copy(b[:], b[1:])
	b[wakesAtMost-1] = now
}

// spaced is how long a wake has to wait: until a beat more is not one too many for
// a second, and a moment for other wakes like it. A few in a row go at once: a
// bucket that moves needs two.
func (b *began) spaced(now time.Time) time.Duration {
	wait := time.Duration(0)
	if first := b[0]; !first.IsZero() {
		wait = time.Second - clock.Elapsed(first, now)
	}
	if last := b[wakesAtMost-1]; !last.IsZero() {
		wait = max(wait, wakeGap-clock.Elapsed(last, now))
	}
	return max(wait, 0)
}

func scale(d time.Duration, factor float64) time.Duration {
	return time.Duration(float64(d) * factor)
}
