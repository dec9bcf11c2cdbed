package lease

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/suisha-go/suisha/internal/clock"
)

// open starts the tenures of what was claimed and hands them to the Holder.
func (k *Keeper) open(ctx context.Context, buckets []int, wanted []Wanted, trust Trust) {
	if len(buckets) == 0 {
		return
	}
	from := map[int]string{}
	for _, w := range wanted {
		switch w.Expected {
		case uuid.Nil:
			from[w.Bucket] = "join"
		case k.cfg.Identity.Worker:
			from[w.Bucket] = "resumed"
		default:
			from[w.Bucket] = "expired"
			if w.Expiry != 0 {
				from[w.Bucket] = "gone"
			}
		}
	}
	tenures := make([]*Tenure, 0, len(buckets))
	k.mu.Lock()
	for _, b := range buckets {
		k.lastID++
		t := NewTenure(context.WithoutCancel(ctx), b, k.lastID, trust)
		e := &entry{tenure: t, phase: opening}
		k.entries[b] = e
		context.AfterFunc(t.Context(), func() { k.endedBy(ctx, e) })
		tenures = append(tenures, t)
	}
	k.mu.Unlock()
	for _, b := range buckets {
		k.event(ctx, Claimed, b, from[b], nil)
	}
	k.holder.Assign(tenures)
	defer signal(k.opened)

	k.mu.Lock()
	defer k.mu.Unlock()
	for _, t := range tenures {
		e := k.entries[t.Bucket]
		e.phase = held
		switch {
		case t.Context().Err() != nil:
			k.lose(ctx, e)
		case k.leaving:
			k.drain(ctx, e, Shutdown)
		}
	}
}

// drain begins a hand-over. The caller holds mu.
func (k *Keeper) drain(ctx context.Context, e *entry, reason Reason) {
	ctx = context.WithoutCancel(ctx)
	e.phase, e.reason = draining, reason
	k.event(ctx, Draining, e.tenure.Bucket, string(reason), nil)
	go func() {
		err := k.holder.Drain(ctx, e.tenure, reason, func(err error) {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.unreleased(ctx, e, err)
		})
		k.drained(ctx, e, err)
	}()
}

// unreleased notes, once, that a draining bucket is not renewed any more. The
// caller holds mu.
func (k *Keeper) unreleased(ctx context.Context, e *entry, err error) {
	if e.phase != draining || e.unreleased != nil || err == nil {
		return
	}
	e.unreleased = err
	failure := &DrainError{Subscription: k.cfg.Subscription.Name, Bucket: e.tenure.Bucket, Reason: e.reason, Err: err}
	if k.leaving {
		k.drainErr = append(k.drainErr, failure)
	}
	k.event(ctx, Unreleased, e.tenure.Bucket, string(e.reason), err)
	k.report.error(ctx, failure)
	signal(k.changed)
}

// giveUp ends the tenure of a draining bucket. The caller holds mu.
func (k *Keeper) giveUp(ctx context.Context, e *entry, cause error) {
	e.tenure.End(cause)
	k.unreleased(ctx, e, cause)
}

// drained ends a hand-over: nothing of the tenure runs any more.
func (k *Keeper) drained(ctx context.Context, e *entry, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil {
		e.tenure.End(ErrReleased)
		k.event(ctx, Released, e.tenure.Bucket, string(e.reason), nil)
	} else {
		k.unreleased(ctx, e, err)
		e.tenure.End(ErrLost)
	}
	k.forget(e)
}

// lose ends the tenure of a bucket that is held. The caller holds mu.
func (k *Keeper) lose(ctx context.Context, e *entry) {
	e.phase, e.reason = ending, Lost
	e.tenure.End(ErrLost)
	k.event(ctx, Dropped, e.tenure.Bucket, string(Lost), nil)
	go func() {
		k.holder.Lose(e.tenure)
		k.mu.Lock()
		defer k.mu.Unlock()
		k.forget(e)
	}()
}

// forget removes the entry: the bucket may be claimed again. The caller holds mu.
func (k *Keeper) forget(e *entry) {
	delete(k.entries, e.tenure.Bucket)
	signal(k.changed)
	k.Wake()
}

// Resign gives up a bucket that cannot be worked here: it drains, and this worker
// does not claim it for that long. Another worker takes it, and this one gets
// another in its place; a lone worker leaves it free until the time is over. It
// does not block. It returns false when the tenure is not held: not yet, or not any
// more.
func (k *Keeper) Resign(ctx context.Context, t *Tenure, pause time.Duration) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.entries[t.Bucket]
	if e == nil || e.tenure != t || e.phase != held {
		return false
	}
	k.resigned[t.Bucket] = clock.Now().Add(pause)
	k.drain(ctx, e, Rebalanced)
	return true
}

// endedBy lets go of a bucket whose tenure its Holder ended: it saw that the
// lease is lost, or wants to begin again. If the row is still this worker's, the
// next pass takes it as a new tenure.
func (k *Keeper) endedBy(ctx context.Context, e *entry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e.phase == held && k.entries[e.tenure.Bucket] == e {
		k.lose(context.WithoutCancel(ctx), e)
	}
}

// expire ends the tenures whose trust is used up (P-23) and returns how long the
// next one lasts.
func (k *Keeper) expire(ctx context.Context) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	next := k.cfg.RenewInterval / 3
	for _, e := range k.entries {
		if e.phase != held && e.phase != draining || e.tenure.Context().Err() != nil {
			continue
		}
		left := e.tenure.Left()
		switch {
		case left > 0:
			next = min(next, left)
		case e.phase == held:
			k.lose(ctx, e)
		default:
			k.giveUp(ctx, e, ErrLost)
		}
	}
	return next
}
