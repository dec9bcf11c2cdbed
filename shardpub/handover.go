package shardpub

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/suisha-go/suisha/internal/clock"
	"github.com/suisha-go/suisha/lease"
)

// Times of a hand-over, beside DrainTimeout.
const (
	afterCancel = time.Second     // what handlers and OnRevoked have at least
	releaseTime = 5 * time.Second // how long a release is tried
	releaseTry  = 3 * time.Second // once; more than lock_timeout
)

// Drain implements lease.Holder: what runs finishes, OnRevoked is called, and
// the bucket is released (P-18, P-19). What takes too long is reported and
// costs the renewal; what is over while the lease is still trusted counts.
func (s *subscription) Drain(_ context.Context, t *lease.Tenure, r lease.Reason, unreleased func(error)) error {
	b := s.bucketOf(t)
	if b == nil {
		return lease.ErrLost
	}
	defer s.forget(b)
	b.stop()
	if err := s.finish(b, r); err != nil {
		unreleased(s.late(r, err))
		if !s.outlasts(b.quiet) {
			return err
		}
	}
	if !b.trusted() {
		s.lost(b)
		return lease.ErrLost
	}
	b.cancel(causeOf(r))
	if revoking, err := s.revoke(b, r); err != nil {
		unreleased(s.late(r, err))
		if !s.outlasts(revoking) {
			return err
		}
	}
	err := s.node.release(b)
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
	if revoking, err := s.revoke(b, lease.Lost); err != nil {
		s.node.report(err)
		s.outlasts(revoking)
	}
}

// finish waits for what runs in the bucket: for DrainTimeout, then cancels the
// handlers' contexts and waits a little more.
func (s *subscription) finish(b *bucket, r lease.Reason) error {
	if within(b.quiet, s.drainTime(r)) {
		return nil
	}
	b.cancel(causeOf(r))
	if within(b.quiet, afterCancel) {
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
	e := slices.MinFunc(slices.Collect(maps.Keys(b.out)), func(x, y *entry) int {
		return b.out[x].since.Compare(b.out[y].since)
	})
	return e, *b.out[e], true
}

// revoke tells of a bucket that goes, if it was told that it came. The channel
// is closed when OnRevoked has returned; with an error it has not.
func (s *subscription) revoke(b *bucket, r lease.Reason) (<-chan struct{}, error) {
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
	limit := max(s.drainTime(r), afterCancel)
	go func() {
		defer close(returned)
		ctx, cancel := context.WithTimeout(s.values, limit)
		defer cancel()
		if err := hook(b, "OnRevoked", func() { s.cfg.OnRevoked(ctx, s.assignment(b), r) }); err != nil {
			s.node.report(err)
		}
	}()
	if within(returned, limit) {
		return returned, nil
	}
	return returned, &HookError{Subscription: s.name, Bucket: b.number, Hook: "OnRevoked", Err: errHookLate}
}

// drainTime is what is left: from now for a bucket that moves, from the Close
// for all others.
func (s *subscription) drainTime(r lease.Reason) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closeBy.IsZero() && r != lease.Rebalanced {
		return max(s.closeBy.Sub(clock.Now()), 0)
	}
	return s.cfg.DrainTimeout
}

func causeOf(r lease.Reason) error {
	if r == lease.Shutdown {
		return lease.ErrShutdown
	}
	return lease.ErrDrain
}

// within waits for at most d.
func within(d <-chan struct{}, limit time.Duration) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-d:
		return true
	case <-t.C:
		return false
	}
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

// late keeps what held up a Close.
func (s *subscription) late(r lease.Reason, err error) error {
	if r == lease.Shutdown {
		s.mu.Lock()
		s.drains = append(s.drains, err)
		s.mu.Unlock()
	}
	return err
}

// drainErrors are the handlers and hooks that held up a Close.
func (s *subscription) drainErrors() []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.drains)
}
