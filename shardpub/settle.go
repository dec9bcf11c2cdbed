package shardpub

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/suisha-go/suisha/internal/clock"
	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/lease"
)

// Times of writing on behalf of buckets.
const (
	idleFlush    = 5 * time.Second // how often checkpoints of buckets without events follow the log
	flushBackoff = 250 * time.Millisecond
	writeTimeout = 5 * time.Second
)

// flusher writes checkpoints: those of all buckets of a process together, some
// time after the first of them moved.
type flusher struct {
	node *Node

	mu    sync.Mutex // guards dirty
	dirty map[*bucket]struct{}
	kick  chan struct{}

	statement sync.Mutex // held while a statement is under way (P-21)
}

func newFlusher(n *Node) *flusher {
	return &flusher{node: n, dirty: map[*bucket]struct{}{}, kick: make(chan struct{}, 1)}
}

// mark has the bucket's checkpoint written soon.
func (f *flusher) mark(b *bucket) {
	f.mu.Lock()
	first := len(f.dirty) == 0
	f.dirty[b] = struct{}{}
	f.mu.Unlock()
	if first {
		select {
		case f.kick <- struct{}{}:
		default:
		}
	}
}

func (f *flusher) take() []*bucket {
	f.mu.Lock()
	defer f.mu.Unlock()
	buckets := make([]*bucket, 0, len(f.dirty))
	for b := range f.dirty {
		buckets = append(buckets, b)
	}
	clear(f.dirty)
	return buckets
}

// forget returns when no statement writes for the bucket, nor will.
func (f *flusher) forget(b *bucket) {
	f.statement.Lock()
	defer f.statement.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.dirty, b)
}

// run writes until ctx ends. What is dirty then goes out with the releases. Every
// now and then, busy or not, all checkpoints are written: those of buckets
// without events follow the log.
func (f *flusher) run(ctx context.Context) {
	swept := clock.Now()
	for ctx.Err() == nil {
		if wait(ctx, idleFlush, f.kick) {
			wait(ctx, f.node.checkpointInterval(), nil)
		}
		if ctx.Err() != nil {
			return
		}
		buckets := f.take()
		if now := clock.Now(); clock.Elapsed(swept, now) >= idleFlush {
			buckets, swept = f.node.buckets(), now
		}
		if err := f.flush(ctx, buckets); err != nil {
			f.node.failed(&CheckpointError{Err: err})
			wait(ctx, flushBackoff, nil)
		}
	}
}

// flush writes the checkpoints that their rows do not hold yet, in one fenced
// statement. What could not be written stays dirty; what was lost ends.
func (f *flusher) flush(ctx context.Context, buckets []*bucket) error {
	f.statement.Lock()
	defer f.statement.Unlock()
	rows := checkpointRows{byKey: map[bucketKey]*bucket{}}
	for _, b := range buckets {
		if p, ok := b.unsaved(); ok && b.trusted() {
			rows.add(b, p)
		}
	}
	if len(rows.buckets) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if err := rows.write(ctx, f.node.pool, f.mark); err != nil {
		for _, b := range rows.byKey {
			f.mark(b)
		}
		return err
	}
	f.node.succeeded()
	return nil
}

type bucketKey struct {
	subscription string
	bucket       int
	worker       uuid.UUID
}

// checkpointRows are the parameters of checkpoint.sql.
type checkpointRows struct {
	subscriptions []string
	buckets       []int32
	workers       []uuid.UUID
	shards        []int32
	positions     []int64
	byKey         map[bucketKey]*bucket
}

func (r *checkpointRows) add(b *bucket, p kiroku.Position) {
	r.subscriptions = append(r.subscriptions, b.sub.name)
	r.buckets = append(r.buckets, int32(b.number)) //nolint:gosec // at most maxShards
	r.workers = append(r.workers, b.sub.worker)
	r.shards = append(r.shards, int32(b.sub.cfg.Shards)) //nolint:gosec // at most maxShards
	r.positions = append(r.positions, int64(p))
	r.byKey[bucketKey{b.sub.name, b.number, b.sub.worker}] = b
}

// write runs the statement. skipped is called for buckets whose lease row was
// locked: their checkpoint waits for the next flush.
func (r *checkpointRows) write(ctx context.Context, db kiroku.DB, skipped func(*bucket)) error {
	rows, err := db.Query(ctx, checkpointSQL, r.subscriptions, r.buckets, r.workers, r.shards, r.positions)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var k bucketKey
		var position kiroku.Position
		var saved, mine bool
		if err := rows.Scan(&k.subscription, &k.bucket, &k.worker, &position, &saved, &mine); err != nil {
			return err
		}
		b := r.byKey[k]
		switch {
		case saved:
			b.saved(position)
		case mine:
			skipped(b)
		default:
			b.tenure.End(lease.ErrLost)
			b.sub.wake()
		}
	}
	return rows.Err()
}

// writeDeadLetter records that an event was given up, together with the
// checkpoint as it is once the event is settled (P-37). written is false when
// the fence did not hold: nothing was written. An event that was hard-deleted
// meanwhile counts as written.
func (n *Node) writeDeadLetter(b *bucket, e *entry, reason kiroku.Reason, deliveries int) (written bool, err error) {
	text, err := json.Marshal(reason) // fit for PostgreSQL, like the summary
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.base), min(writeTimeout, b.tenure.Left()))
	defer cancel()
	mark := b.markWithout(e)
	err = n.pool.QueryRow(ctx, deadLetterSQL,
		b.sub.name, b.number, b.sub.worker, b.sub.cfg.Shards,
		int64(e.event.Position), e.event.ID, string(text), reason.Summary(), deliveries, int64(mark),
	).Scan(&written)
	if isEventGone(err) {
		return true, nil
	}
	if err != nil {
		n.setFailing(true)
		return false, err
	}
	n.succeeded()
	if written {
		b.saved(mark)
	}
	return written, nil
}

// release gives a bucket back with its final checkpoint, as long as its lease
// is trusted (P-19).
func (n *Node) release(ctx context.Context, b *bucket) error {
	n.flusher.forget(b)
	var checkpoint *int64
	if p, ok := b.mark(); ok {
		v := int64(p)
		checkpoint = &v
	}
	for {
		released, err := n.tryRelease(ctx, b, checkpoint)
		switch {
		case err == nil && released:
			return nil
		case err == nil || !b.trusted():
			return lease.ErrLost
		}
		n.failed(&BucketError{Subscription: b.sub.name, Bucket: b.number, Doing: "release", Err: err})
		wait(ctx, flushBackoff, nil)
		if ctx.Err() != nil {
			return err
		}
	}
}

func (n *Node) tryRelease(ctx context.Context, b *bucket, checkpoint *int64) (released bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, min(writeTimeout, b.tenure.Left()))
	defer cancel()
	var told int
	err = n.pool.QueryRow(ctx, releaseSQL, b.sub.name, b.number, b.sub.worker, b.sub.cfg.Shards, checkpoint).Scan(&released, &told)
	return released, err
}
