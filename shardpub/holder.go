package shardpub

import (
	"context"
	"slices"
	"time"

	"github.com/suisha-go/suisha/internal/clock"
	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/lease"
)

// Assign implements lease.Holder.
func (s *subscription) Assign(tenures []*lease.Tenure) {
	buckets := make([]*bucket, 0, len(tenures))
	for _, t := range tenures {
		buckets = append(buckets, newBucket(s, t))
	}
	s.mu.Lock()
	for _, b := range buckets {
		s.tenures[b.tenure] = b
	}
	s.shareLocked()
	s.mu.Unlock()
	s.opening.Go(func() { s.open(buckets) })
}

// open loads the checkpoints, in a statement begun after the claim committed
// (P-20), and brings the buckets into the feed.
func (s *subscription) open(buckets []*bucket) {
	places, head, ok := s.places(buckets)
	if !ok {
		return
	}
	ready := map[*bucket]kiroku.Position{}
	for _, b := range buckets {
		at := places[b.number]
		if at > head {
			b.failed("start", &BeyondHeadError{Checkpoint: at, Head: head})
			continue
		}
		if b.open(at) {
			ready[b] = at
		}
	}
	if s.cfg.OnAssigned == nil {
		for b, at := range ready {
			s.assigned(b, at)
		}
		s.node.feed.add(ready)
		return
	}
	for b, at := range ready {
		s.opening.Go(func() { s.introduce(b, at) })
	}
}

// introduce calls OnAssigned, as something that runs in the bucket: a bucket
// that goes meanwhile waits for it.
func (s *subscription) introduce(b *bucket, at kiroku.Position) {
	if !b.enter() {
		return
	}
	s.cfg.OnAssigned(b.base, s.assignment(b))
	b.exit()
	s.assigned(b, at)
	s.node.feed.add(map[*bucket]kiroku.Position{b: at})
}

// places reads checkpoints and head until it succeeds or no bucket is left.
func (s *subscription) places(buckets []*bucket) (at map[int]kiroku.Position, head kiroku.Position, ok bool) {
	for backoff := readBackoff; ; backoff = min(2*backoff, readBackoffX) {
		i := slices.IndexFunc(buckets, func(b *bucket) bool { return !b.isStopped() })
		if i < 0 {
			return nil, 0, false
		}
		waiting := buckets[i]
		var err error
		if at, head, err = s.tryPlaces(); err == nil {
			s.node.succeeded()
			return at, head, true
		}
		s.node.failed(&BucketError{Subscription: s.name, Bucket: waiting.number, Doing: "load checkpoints", Err: err})
		wait(s.values, backoff, waiting.quit)
	}
}

func (s *subscription) tryPlaces() (map[int]kiroku.Position, kiroku.Position, error) {
	ctx, cancel := context.WithTimeout(s.values, writeTimeout)
	defer cancel()
	at, err := kiroku.LoadCheckpoints(ctx, s.node.pool, s.name)
	if err != nil {
		return nil, 0, err
	}
	head, err := kiroku.Head(ctx, s.node.pool)
	return at, head, err
}

func (s *subscription) assigned(b *bucket, at kiroku.Position) {
	b.mu.Lock()
	b.told, b.reading = true, true
	b.mu.Unlock()
	b.observe(Event{Kind: BucketAssigned, Position: at})
}

// revoked tells of a bucket that goes, if it was told that it came.
func (s *subscription) revoked(b *bucket, r lease.Reason) {
	b.mu.Lock()
	told := b.told
	b.mu.Unlock()
	if !told {
		return
	}
	if s.cfg.OnRevoked != nil {
		s.cfg.OnRevoked(s.values, s.assignment(b), r)
	}
	b.observe(Event{Kind: BucketRevoked, Reason: r})
}

func (s *subscription) assignment(b *bucket) Assignment {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Assignment{Subscription: s.name, Bucket: b.number, Shards: s.cfg.Shards, Checkpoint: b.opened}
}

// afterCancel is how long handlers have once their contexts were cancelled.
const afterCancel = time.Second

// Drain implements lease.Holder (P-18, P-19).
func (s *subscription) Drain(ctx context.Context, t *lease.Tenure, r lease.Reason, unreleased func(error)) error {
	b := s.bucketOf(t)
	if b == nil {
		return lease.ErrLost
	}
	defer s.forget(b)
	b.stop()
	if !b.waitQuiet(s.drainTime(r)) {
		b.cancel(causeOf(r))
		if !b.waitQuiet(afterCancel) {
			err := s.outlived(b, r)
			unreleased(err)
			s.waitGone(b)
			s.revoked(b, lease.Lost)
			return err
		}
	}
	if t.Context().Err() != nil {
		s.revoked(b, lease.Lost)
		return context.Cause(t.Context())
	}
	s.revoked(b, r)
	b.cancel(causeOf(r))
	return s.node.release(context.WithoutCancel(ctx), b)
}

// drainTime is what handlers have left: from now for a bucket that moves, from
// the Close for all others.
func (s *subscription) drainTime(r lease.Reason) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r == lease.Shutdown && !s.closeBy.IsZero() {
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

// waitQuiet waits until nothing of the bucket runs.
func (b *bucket) waitQuiet(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-b.quiet:
		return true
	case <-t.C:
		return false
	}
}

// outlived reports the handler that did not end in time.
func (s *subscription) outlived(b *bucket, r lease.Reason) error {
	err := &DrainError{Subscription: s.name, Bucket: b.number}
	if e, f, ok := b.oldest(); ok {
		err.Stream, err.Position, err.Since = e.stream, e.event.Position, f.since
	}
	if r == lease.Shutdown {
		s.mu.Lock()
		s.drains = append(s.drains, err)
		s.mu.Unlock()
	}
	s.node.report(err)
	return err
}

// waitGone waits for the bucket's last handler, or until the worker has left.
func (s *subscription) waitGone(b *bucket) {
	select {
	case <-b.quiet:
	case <-s.gone:
	}
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
	s.waitGone(b)
	s.node.flusher.forget(b)
	s.revoked(b, lease.Lost)
}

// drainErrors are the handlers that outlived their drain timeout.
func (s *subscription) drainErrors() []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.drains)
}
