package shardpub

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/internal/clock"
)

// Times of writing on behalf of buckets.
const (
	sweepInterval = 10 * time.Second      // how often checkpoints of buckets without events follow the log
	flushGap      = 50 * time.Millisecond // from one flush to the next: at most 20 a second
	flushShare    = 10                    // so many times as long as the last one took, but
	flushGapX     = time.Second           // no longer than this
	flushBackoff  = 250 * time.Millisecond
	writeTimeout  = 5 * time.Second
)

// farBehind is how many places a checkpoint may be behind without waiting for the
// sweep: a successor reads so many keys again, in some 50 ms.
const farBehind = 50_000

// flushPause is how long a flush waits for more, from the first bucket that has
// something to write and since the flush before it, which took so long: for the
// shortest CheckpointInterval, and for as long as keeps to the pace. Many checkpoints
// are a lot to write, and must not keep the server from its work.
func flushPause(interval, since, took time.Duration) time.Duration {
	return max(interval, flushGap-since, min(flushShare*took, flushGapX)-since)
}

// flusher writes checkpoints: those of all buckets of a process together, some
// time after the first of them moved.
type flusher struct {
	node *Node

	mu    sync.Mutex // guards dirty
	dirty map[*bucket]struct{}
	kick  chan struct{}

	statement sync.Mutex // held while a statement is under way (P-21)
	sent      time.Time  // the last one; guarded by statement
	took      time.Duration
}

func newFlusher(n *Node) *flusher {
	return &flusher{node: n, dirty: map[*bucket]struct{}{}, kick: make(chan struct{}, 1)}
}

// mark has the bucket's checkpoint written soon.
func (f *flusher) mark(b *bucket) {
	if b.dirty.Swap(true) {
		return
	}
	f.mu.Lock()
	first := len(f.dirty) == 0
	f.dirty[b] = struct{}{}
	f.mu.Unlock()
	if first {
		signal(f.kick)
	}
}

func (f *flusher) take() []*bucket {
	f.mu.Lock()
	defer f.mu.Unlock()
	buckets := make([]*bucket, 0, len(f.dirty))
	for b := range f.dirty {
		b.dirty.Store(false) // before anything of it is looked at
		buckets = append(buckets, b)
	}
	clear(f.dirty)
	return buckets
}

// forget returns when no statement writes the bucket's checkpoint, nor will.
func (f *flusher) forget(b *bucket) {
	b.give()
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
		if wait(ctx, sweepInterval, f.kick) {
			wait(ctx, f.pause(), nil)
		}
		if ctx.Err() != nil {
			return
		}
		buckets := f.take()
		if now := clock.Now(); clock.Elapsed(swept, now) >= sweepInterval {
			buckets, swept = f.node.buckets(), now
		}
		if err := f.flush(ctx, buckets); err != nil {
			f.node.failed(&CheckpointError{Err: err})
			wait(ctx, flushBackoff, nil)
		}
	}
}

func (f *flusher) pause() time.Duration {
	f.statement.Lock()
	defer f.statement.Unlock()
	return flushPause(f.node.checkpointInterval(), clock.Elapsed(f.sent, clock.Now()), f.took)
}

// flush writes the checkpoints, and what is settled above them, that their rows do
// not hold yet, in one fenced statement. What could not be written stays dirty;
// what was lost ends.
func (f *flusher) flush(ctx context.Context, buckets []*bucket) error {
	f.statement.Lock()
	defer f.statement.Unlock()
	if !slices.ContainsFunc(buckets, (*bucket).due) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err := f.node.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		rows := unsavedOf(buckets, f.mark) // looked at again: the log is known now (P-31)
		defer rows.done()
		if len(rows.buckets) == 0 {
			return nil
		}
		f.sent = clock.Now()
		lost, err := rows.save(ctx, conn, f.mark)
		f.took = clock.Elapsed(f.sent, clock.Now())
		if err != nil {
			return err
		}
		f.node.fence(ctx, conn, lost...)
		f.node.last.good()
		return nil
	})
	if err != nil {
		for _, b := range buckets {
			f.mark(b)
		}
	}
	return err
}
