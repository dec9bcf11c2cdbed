package shardpub

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

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
	p, ok := s.places(buckets)
	if !ok {
		return
	}
	ready := map[*bucket]kiroku.Position{}
	for _, b := range buckets {
		at := p.at[b.number]
		if at > p.head {
			b.failed("start", &BeyondHeadError{Checkpoint: at, Head: p.head})
			continue
		}
		if b.open(at) {
			ready[b] = at
		}
	}
	if s.cfg.OnAssigned == nil {
		for b, at := range ready {
			b.begin(at)
		}
	}
	s.node.feed.add(ready, p.stands)
	if s.cfg.OnAssigned == nil {
		return
	}
	for b, at := range ready {
		go s.introduce(b, at)
	}
}

// introduce calls OnAssigned, as something that runs in the bucket: a bucket
// that goes meanwhile waits for it. Where it panics the bucket cannot be worked.
func (s *subscription) introduce(b *bucket, at kiroku.Position) {
	if !b.enter() {
		return
	}
	err := error(&HookError{Subscription: s.name, Bucket: b.number, Hook: "OnAssigned", Err: errHookEnded})
	defer func() {
		b.exit()
		if err == nil {
			s.node.feed.nudge()
			return
		}
		s.node.report(err)
		for !s.keeper.Resign(s.values, b.tenure, resignPause) && !b.isStopped() {
			wait(b.base, resignRetry, b.quit)
		}
	}()
	if err = hook(b, "OnAssigned", func() { s.cfg.OnAssigned(b.base, s.assignment(b)) }); err == nil {
		b.begin(at)
	}
}

// resignPause is how long a worker leaves a bucket alone that it could not work.
const resignPause = 10 * time.Second

// resignRetry is how soon it tries again, while the keeper still hands the bucket over.
const resignRetry = 10 * time.Millisecond

// places is where the buckets of a subscription begin.
type places struct {
	at     map[int]kiroku.Position
	stands anchors // what stands there
	head   kiroku.Position
}

// places reads checkpoints and head until it succeeds or no bucket is left.
func (s *subscription) places(buckets []*bucket) (p places, ok bool) {
	for backoff := readBackoff; ; backoff = min(2*backoff, readBackoffX) {
		i := slices.IndexFunc(buckets, func(b *bucket) bool { return !b.isStopped() })
		if i < 0 {
			return places{}, false
		}
		waiting := buckets[i]
		p, err := s.tryPlaces()
		if err == nil {
			s.node.last.good()
			return p, true
		}
		s.node.failed(&BucketError{Subscription: s.name, Bucket: waiting.number, Doing: "load checkpoints", Err: err})
		wait(s.values, backoff, waiting.quit)
	}
}

func (s *subscription) tryPlaces() (p places, err error) {
	ctx, cancel := context.WithTimeout(s.values, writeTimeout)
	defer cancel()
	err = s.node.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		if p.at, err = kiroku.LoadCheckpoints(ctx, conn, s.name); err != nil {
			return err
		}
		if p.stands, err = anchorsAt(ctx, conn, slices.Collect(maps.Values(p.at))); err != nil {
			return &ReadError{Err: err}
		}
		if p.head, err = kiroku.Head(ctx, conn); err != nil {
			return &ReadError{Err: err}
		}
		return nil
	})
	return p, err
}

func (s *subscription) assignment(b *bucket) Assignment {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Assignment{Subscription: s.name, Bucket: b.number, Shards: s.cfg.Shards, Checkpoint: b.opened}
}
