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
		signal(f.kick)
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
	if !slices.ContainsFunc(buckets, func(b *bucket) bool { _, due := b.due(); return due }) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err := f.node.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		return unsavedOf(buckets).save(ctx, conn, f.mark) // looked at again: the log is known now (P-31)
	})
	if err != nil {
		for _, b := range buckets {
			f.mark(b)
		}
		return err
	}
	f.node.last.good()
	return nil
}
