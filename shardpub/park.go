package shardpub

import (
	"time"

	"github.com/suisha-go/suisha/internal/clock"
	"github.com/suisha-go/suisha/lease"
)

// Backing off before more events are given up (P-38).
const (
	minBackOff = time.Second
	maxBackOff = time.Minute
)

// backOff is how long a bucket waits before it gives up another event after
// streak events in a row exhausted their budget.
func backOff(streak int) time.Duration {
	if streak <= 0 {
		return 0
	}
	return min(minBackOff<<min(streak-1, 10), maxBackOff)
}

// holdBack waits before an exhausted event is parked, if the one before it was
// exhausted too. False when the bucket goes.
func (b *bucket) holdBack(e *entry, v verdict) bool {
	b.mu.Lock()
	wait := backOff(b.streak)
	if wait > 0 {
		b.until = clock.Now().Add(wait)
	}
	b.mu.Unlock()
	if wait == 0 {
		return true
	}
	b.observe(Event{Kind: BackedOff, Stream: e.stream, Position: e.event.Position, Err: v.err})
	return b.pause(e, wait)
}

// park writes the dead letter. parked: it is settled. again: it could not be
// written and the event is to be delivered again first (P-37).
func (b *bucket) park(e *entry, v verdict, deliveries int) (parked, again bool) {
	if v.exhausted && !b.holdBack(e, v) {
		return false, false
	}
	if !b.trusted() {
		return false, false
	}
	written, err := b.sub.node.writeDeadLetter(b, e, v.reason, deliveries)
	switch {
	case err != nil:
		b.failed("write dead letter", err)
		return false, b.pause(e, deadLetterRetry)
	case !written:
		b.tenure.End(lease.ErrLost)
		b.sub.wake()
		return false, false
	}
	b.mu.Lock()
	b.lastErr = nil
	if b.streak++; !v.exhausted {
		b.streak = 0
	}
	b.mu.Unlock()
	b.observe(Event{Kind: DeadLettered, Stream: e.stream, Position: e.event.Position, Attempt: deliveries - 1, Err: v.err})
	return true, false
}

// deadLetterRetry is the time after a failed write until the event is delivered again.
const deadLetterRetry = time.Second
