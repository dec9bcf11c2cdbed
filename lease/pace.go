package lease

import "time"

const (
	wakeSpacing  = 250 * time.Millisecond // between two beats that somebody woke, in the long run
	wakesAtOnce  = 4                      // after a quiet time
	wakeGap      = 20 * time.Millisecond  // between two in any case
	awaitGap     = 5 * time.Millisecond   // the same for each live worker, while buckets are on their way
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
	// common is the time until the beat that the Keepers of the process share, zero
	// where this one beats by itself.
	common time.Duration
	// random is in [0, 1) and places the jitter.
	random float64
}

// nextPass is how long to wait for the next pass if nothing wakes the worker
// (P-7).
func nextPass(renew time.Duration, o outlook) time.Duration {
	if o.failed {
		return scale(min(failedCeil, renew), 0.25+0.75*o.random)
	}
	next := o.common
	if next == 0 {
		next = scale(renew, 0.9+0.2*o.random)
	}
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

// passes keeps wakes apart: four a second, and a few in a row at once after a quiet
// time. A worker that waits for buckets to be released is told of each by a wake of
// its own and need not wait so long: together the workers make at most two hundred
// such passes a second.
type passes struct {
	last   time.Time     // when the latest began
	paid   time.Time     // until when those that were made are paid for
	awaits time.Duration // the gap while buckets are on their way, zero when none is
}

func (p *passes) began(now time.Time) {
	p.last = now
	if p.awaits > 0 {
		return
	}
	if p.paid.Before(now) {
		p.paid = now
	}
	p.paid = p.paid.Add(wakeSpacing)
}

// learned takes in what the pass found.
func (p *passes) learned(pass Pass) {
	p.awaits = 0
	if pass.Awaits {
		p.awaits = min(max(wakeGap, time.Duration(pass.Live)*awaitGap), wakeSpacing)
	}
}

// spaced is how long a wake has to wait; at least a moment, for others like it.
func (p *passes) spaced(now time.Time) time.Duration {
	switch {
	case p.last.IsZero():
		return 0
	case p.awaits > 0:
		return max(p.awaits-now.Sub(p.last), 0)
	default:
		return max(p.paid.Sub(now)-(wakesAtOnce-1)*wakeSpacing, wakeGap-now.Sub(p.last), 0)
	}
}

func scale(d time.Duration, factor float64) time.Duration {
	return time.Duration(float64(d) * factor)
}
