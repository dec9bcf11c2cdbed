package lease

import (
	"context"
	"errors"
	"time"

	"github.com/suisha-go/suisha/internal/clock"
)

// endingGrace is how long a worker that leaves waits for lost buckets to stop.
const endingGrace = time.Second

// Run joins and keeps the worker's share of the buckets until ctx ends. Then it
// drains them all at once, leaves and returns. It blocks; a Keeper runs once.
// Errors on the way go to OnError and are tried again: nothing makes it give up.
//
// The result is nil, or an [errors.Join] of the [*DrainError] of buckets that
// were not released, or [ErrUsed]. Run waits for a drain until its Holder returns
// or says that the bucket cannot be released in time, and no longer than the
// lease is trusted.
func (k *Keeper) Run(ctx context.Context) error {
	if !k.used.CompareAndSwap(false, true) {
		return ErrUsed
	}
	// What runs outlives ctx: a cancelled statement would cost the session, and
	// draining buckets are renewed.
	base := context.WithoutCancel(ctx)
	watching, unwatch := context.WithCancel(base)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		k.watch(watching)
	}()
	// Draining begins when ctx ends, even while a beat hangs.
	stop := context.AfterFunc(ctx, func() { k.beginLeaving(base) })
	k.loop(ctx, base)
	stop()
	err := k.leave(base)
	k.cfg.Watch.follow(k, nil)
	unwatch()
	<-watched
	k.report.flush()
	return err
}

// loop makes passes until ctx ends.
func (k *Keeper) loop(ctx, base context.Context) {
	var pace passes
	for ctx.Err() == nil {
		pace.began(clock.Now())
		pass, _ := k.Once(base) // reported already
		pace.learned(pass)
		k.pause(ctx, pace, pass.Next)
	}
}

// pause waits for the next pass: for its time, or for a wake.
func (k *Keeper) pause(ctx context.Context, pace passes, next time.Duration) {
	timer := time.NewTimer(next)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return
	case <-timer.C:
		return
	case <-k.wake:
	}
	if gap := pace.spaced(clock.Now()); gap < next {
		timer.Reset(gap)
	}
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// watch ends tenures when their trust is used up. It never waits for a beat.
func (k *Keeper) watch(ctx context.Context) {
	for ctx.Err() == nil {
		timer := time.NewTimer(k.expire(ctx))
		select {
		case <-ctx.Done():
		case <-k.opened:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// beginLeaving drains whatever is held. From here on nothing is claimed.
func (k *Keeper) beginLeaving(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.leaving {
		return
	}
	k.leaving = true
	for _, e := range k.entries {
		if e.phase == held {
			k.drain(ctx, e, Shutdown)
		}
	}
}

// leave waits for the drains, renewing what still drains, and goes.
func (k *Keeper) leave(ctx context.Context) error {
	k.beginLeaving(ctx)
	k.waitForDrains(ctx)

	k.turn <- struct{}{}
	defer func() { <-k.turn }()
	k.mu.Lock()
	joined := k.joined
	k.ended = true
	k.mu.Unlock()
	if joined {
		step, cancel := k.step(ctx)
		defer cancel()
		if err := k.store.Leave(step, k.cfg.Subscription.Name, k.cfg.Identity.Worker); err != nil {
			_ = k.fail(ctx, StepLeave, err) // reported; the presence runs out by itself
		}
	}
	k.event(ctx, Left, -1, "", nil)
	k.mu.Lock()
	defer k.mu.Unlock()
	return errors.Join(k.drainErr...)
}

// waitForDrains beats while a drain goes on, and once more if something failed:
// what nothing works on any more is freed then.
func (k *Keeper) waitForDrains(ctx context.Context) {
	grace := time.NewTimer(endingGrace)
	defer grace.Stop()
	over := false
	beat := time.NewTimer(0)
	defer beat.Stop()
	for {
		drains, ends, failed := k.unfinished()
		if drains == 0 && (ends == 0 || over) {
			if failed {
				_, _ = k.Once(ctx) // reported already
			}
			return
		}
		select {
		case <-k.changed:
		case <-grace.C:
			over = true
		case <-beat.C:
			pass, _ := k.Once(ctx) // reported already
			beat.Reset(pass.Next)
		}
	}
}

// unfinished counts the drains to wait for and the lost buckets that still run,
// and tells whether anything failed of late.
func (k *Keeper) unfinished() (drains, ends int, failed bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range k.entries {
		switch {
		case e.phase == ending:
			ends++
		case e.phase == opening || e.unreleased == nil:
			drains++
		}
	}
	return drains, ends, len(k.drainErr) > 0 || k.state.lastErr != nil
}
