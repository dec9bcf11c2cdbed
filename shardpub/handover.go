package shardpub

import (
	"context"
	"slices"
	"time"

	"github.com/suisha-go/suisha/internal/clock"
	"github.com/suisha-go/suisha/lease"
)

// afterCancel is what handlers have once their contexts were cancelled, and what
// OnRevoked has at least.
const afterCancel = time.Second

// Drain implements lease.Holder: what runs finishes, OnRevoked is called, and
// the bucket is released (P-18, P-19). What takes too long is reported and
// costs the renewal; what is over while the lease is still trusted counts.
func (s *subscription) Drain(_ context.Context, t *lease.Tenure, r lease.Reason, unreleased func(error)) error {
	b := s.bucketOf(t)
	if b == nil {
		return lease.ErrLost
	}
	defer s.forget(b)
	began := clock.Now()
	b.stop()
	if err := s.finish(b, r, began); err != nil {
		unreleased(s.outlived(b, err))
		if !s.outlasts(b.quiet) {
			return err
		}
	}
	if !b.trusted() {
		s.lost(b)
		return lease.ErrLost
	}
	b.cancel(causeOf(r))
	if revoking, err := s.revoke(b, r, began); err != nil {
		unreleased(s.outlived(b, err))
		if !s.outlasts(revoking) {
			return err
		}
	}
	err := s.node.releaser.release(b, r)
	if err != nil {
		unreleased(err)
	}
	return err
}

// Lose implements lease.Holder (P-23).
func (s *subscription) Lose(t *lease.Tenure) {
	b := s.bucketOf(t)
	if b == nil {
		return
	}
	defer s.forget(b)
	b.stop()
	b.cancel(lease.ErrLost)
	if s.outlasts(b.quiet) {
		s.lost(b)
	}
}

// lost ends a bucket whose lease is another's: nothing of it runs any more.
func (s *subscription) lost(b *bucket) {
	s.node.flusher.forget(b)
	if revoking, err := s.revoke(b, lease.Lost, clock.Now()); err != nil {
		s.node.report(err)
		s.outlasts(revoking)
	}
}

// finish waits for what runs in the bucket: for DrainTimeout, then cancels the
// handlers' contexts and waits a little more.
func (s *subscription) finish(b *bucket, r lease.Reason, began time.Time) error {
	if s.within(b.quiet, began, 0) {
		return nil
	}
	b.cancel(causeOf(r))
	if s.within(b.quiet, began, afterCancel) {
		return nil
	}
	e, f, ok := b.oldest()
	if !ok {
		return &HookError{Subscription: s.name, Bucket: b.number, Hook: "OnAssigned", Err: errHookLate}
	}
	return &DrainError{Subscription: s.name, Bucket: b.number, Stream: e.stream, Position: e.event.Position, Since: f.since}
}

// oldest is the event that has been out for longest, for a DrainError.
func (b *bucket) oldest() (*entry, flight, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.out) == 0 {
		return nil, flight{}, false
	}
	e := slices.MinFunc(b.out, func(x, y *entry) int { return x.flight.since.Compare(y.flight.since) })
	return e, e.flight, true
}

// revoke tells of a bucket that goes, if it was told that it came. The channel
// is closed when OnRevoked has returned; with an error it has not.
func (s *subscription) revoke(b *bucket, r lease.Reason, began time.Time) (<-chan struct{}, error) {
	returned := make(chan struct{})
	if !b.wasTold() {
		close(returned)
		return returned, nil
	}
	defer b.observe(Event{Kind: BucketRevoked, Reason: r})
	if s.cfg.OnRevoked == nil {
		close(returned)
		return returned, nil
	}
	ctx, cancel := context.WithCancel(s.values)
	defer cancel()
	go func() {
		defer close(returned)
		if err := hook(b, "OnRevoked", func() { s.cfg.OnRevoked(ctx, s.assignment(b), r) }); err != nil {
			s.node.report(err)
		}
	}()
	if s.within(returned, began, afterCancel) {
		return returned, nil
	}
	return returned, &HookError{Subscription: s.name, Bucket: b.number, Hook: "OnRevoked", Err: errHookLate}
}

func causeOf(r lease.Reason) error {
	if r == lease.Shutdown {
		return lease.ErrShutdown
	}
	return lease.ErrDrain
}

// within waits until DrainTimeout is over, from when the bucket began to go or,
// if that is earlier, from the Close; but at least so long. A Close that comes
// meanwhile shortens the wait.
func (s *subscription) within(ended <-chan struct{}, began time.Time, least time.Duration) bool {
	soonest, hurry := clock.Now().Add(least), s.hurry
	for {
		by := s.deadline(began)
		if by.Before(soonest) {
			by = soonest
		}
		t := time.NewTimer(by.Sub(clock.Now()))
		select {
		case <-ended:
			t.Stop()
			return true
		case <-t.C:
			return false
		case <-hurry:
			t.Stop()
			hurry = nil
		}
	}
}

func (s *subscription) deadline(began time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	by := began.Add(s.cfg.DrainTimeout)
	if !s.closeBy.IsZero() && s.closeBy.Before(by) {
		by = s.closeBy
	}
	return by
}

// outlasts waits for what is late; false when the worker has left before it.
func (s *subscription) outlasts(ended <-chan struct{}) bool {
	select {
	case <-ended:
		return true
	case <-s.gone:
		return false
	}
}

// outlived keeps what holds up a Close, now or when there is one.
func (s *subscription) outlived(b *bucket, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closeBy.IsZero() {
		s.late[b] = err
	} else {
		s.drains = append(s.drains, err)
	}
	return err
}

// drainErrors are the handlers and hooks that held up a Close.
func (s *subscription) drainErrors() []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.drains)
}
