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
	maxFlushGap   = time.Second           // where one takes long
	flushBackoff  = 250 * time.Millisecond
	writeTimeout  = 5 * time.Second
)

// farBehind is how many places a checkpoint may be behind without waiting for the
// sweep: a successor reads so many keys again, in some 50 ms.
const farBehind = 50_000

// manyRows in a flush are a lot to write: the next one waits for flushShare times as
// long as it took, or it would keep the server from its work. Where there are fewer, it
// is the way to the server that takes long.
const (
	manyRows   = 128
	flushShare = 10
)

// flushPause is how long a flush waits for more, from the first bucket that has
// something to write and since the flush before it: for the shortest
// CheckpointInterval, and for as long as keeps to the pace. took is how long the one
// before took, if it was of many rows.
func flushPause(interval, since, took time.Duration) time.Duration {
	return max(interval, flushGap-since, min(flushShare*took, maxFlushGap)-since)
}

// flusher writes checkpoints: those of all buckets of a process together, some
// time after the first of them moved.
type flusher struct {
	node *Node

	mu    sync.Mutex // guards dirty
	dirty map[*bucket]struct{}
	kick  chan struct{}

	statement sync.Mutex    // held while a statement is under way (P-21); guards what follows
	sent      time.Time     // the last one
	took      time.Duration // if it was of many rows
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

// forget returns when no statement writes the bucket's checkpoint, nor will: it is
// given, so whatever marks it again finds nothing to write.
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

// pause is how long the next flush waits.
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
		f.took = 0
		if len(rows.buckets) >= manyRows {
			f.took = clock.Elapsed(f.sent, clock.Now())
		}
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
