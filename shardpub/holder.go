package shardpub

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
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
		place := p.of[b.number]
		if place.checkpoint > p.head {
			b.failed("start", &BeyondHeadError{Checkpoint: place.checkpoint, Head: p.head})
			continue
		}
		if b.open(place) {
			ready[b] = place.checkpoint
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
	of     map[int]place
	stands anchors // what stands there
	head   kiroku.Position
}

// place is where a bucket begins.
type place struct {
	checkpoint kiroku.Position
	settled    acks // above it
	stored     bool // suisha.acks has a row
}

// places reads checkpoints and head until it succeeds or no bucket is left.
func (s *subscription) places(buckets []*bucket) (p places, ok bool) {
	for backoff := readBackoff; ; backoff = min(2*backoff, readBackoffX) {
		i := slices.IndexFunc(buckets, func(b *bucket) bool { return !b.isStopped() })
		if i < 0 {
			return places{}, false
		}
		waiting := buckets[i]
		p, err := s.tryPlaces(buckets)
		if err == nil {
			s.node.last.good()
			return p, true
		}
		for _, b := range buckets {
			b.suffer(err)
		}
		s.node.failed(&BucketError{Subscription: s.name, Bucket: waiting.number, Doing: "load checkpoints", Err: err})
		wait(s.values, backoff, waiting.quit)
	}
}

func (s *subscription) tryPlaces(buckets []*bucket) (p places, err error) {
	ctx, cancel := context.WithTimeout(s.values, writeTimeout)
	defer cancel()
	err = s.node.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		if p, err = s.loadPlaces(ctx, conn, buckets); err != nil {
			return err
		}
		var at []kiroku.Position // where what was settled ends
		for _, place := range p.of {
			at = append(at, place.settled.at[max(len(place.settled.at)-1, 0):]...)
		}
		ends, err := anchorsAt(ctx, conn, at)
		if err != nil {
			return &ReadError{Err: err}
		}
		for number, place := range p.of {
			if !place.settled.of(ends) {
				place.settled = acks{}
				p.of[number] = place
			}
		}
		return nil
	})
	return p, err
}

// loadPlaces reads the rows of buckets. What cannot be understood of what was
// settled counts for nothing: it comes again.
func (s *subscription) loadPlaces(ctx context.Context, db kiroku.DB, buckets []*bucket) (places, error) {
	numbers := make([]int32, 0, len(buckets))
	for _, b := range buckets {
		numbers = append(numbers, int32(b.number)) //nolint:gosec // at most maxShards
	}
	all := places{of: map[int]place{}, stands: anchors{}}
	rows, err := db.Query(ctx, placesSQL, s.name, numbers)
	if err != nil {
		return all, err
	}
	defer rows.Close()
	for rows.Next() {
		var (
			number  int
			p       place
			event   pgtype.UUID
			settled []byte
		)
		if err := rows.Scan(&number, &p.checkpoint, &event, &p.stored, &settled, &all.head); err != nil {
			return all, err
		}
		known, err := decodeAcks(settled)
		if err != nil {
			s.node.report(&BucketError{Subscription: s.name, Bucket: number, Doing: "load what was settled", Err: err})
		}
		p.settled = known.above(p.checkpoint)
		all.of[number] = p
		all.stands[p.checkpoint] = event.Bytes
	}
	return all, rows.Err()
}

func (s *subscription) assignment(b *bucket) Assignment {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Assignment{Subscription: s.name, Bucket: b.number, Shards: s.cfg.Shards, Checkpoint: b.opened}
}
