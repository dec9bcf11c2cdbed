package lease

import "time"

const (
	wakeSpacing  = 250 * time.Millisecond // between two beats that somebody woke
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

// spaced is how long a wake has to wait, so long after the last pass began.
func spaced(since time.Duration) time.Duration { return max(wakeSpacing-since, 0) }

func scale(d time.Duration, factor float64) time.Duration {
	return time.Duration(float64(d) * factor)
}
