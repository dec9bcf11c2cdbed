//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// What figures are measured with: default options, and handlers that are slow
// enough for the machine to be idle and for events to wait all the same.
const (
	benchBuckets = 64
	benchStreams = 640
	benchWork    = 200 * time.Millisecond
	benchRate    = 350                   // a little more than the handlers can do
	benchBacklog = 3000                  // events that wait at the beginning
	drainWork    = 10 * time.Millisecond // of the handlers that only end what was begun
	benchWithin  = 90 * time.Second
)

// bench is a server and workers for one figure.
type bench struct {
	o     options
	db    *database
	fleet *fleet
	kills []kill
	quit  context.CancelFunc
	parts sync.WaitGroup
}

// newBench opens one; loaded says whether there is something to do.
func newBench(ctx context.Context, o options, log io.Writer, loaded bool) (*bench, error) {
	o.buckets, o.streams, o.work, o.rate, o.ttl, o.renew = benchBuckets, benchStreams, benchWork, benchRate, 0, 0
	db, err := openDatabase(ctx)
	if err != nil {
		return nil, err
	}
	b := &bench{o: o, db: db, fleet: db.fleet(o)}
	b.fleet.log = log
	ctx, b.quit = context.WithCancel(ctx)
	if !loaded {
		return b, nil
	}
	load := newLoad(db.pool, o)
	for range benchBacklog / mostAtOnce {
		if err := load.append(ctx, mostAtOnce); err != nil {
			b.close()
			return nil, err
		}
	}
	b.parts.Go(func() { load.run(ctx) })
	return b, nil
}

// still ends the load and the workers, so that questions can be asked.
func (b *bench) still() {
	b.quit()
	b.parts.Wait()
	b.fleet.killAll()
}

func (b *bench) close() {
	b.still()
	b.db.close()
}

// start starts so many workers at once.
func (b *bench) start(ctx context.Context, n int) ([]*process, error) {
	var all []*process
	for range n {
		p, err := b.fleet.start(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// even waits until all live workers have their exact shares.
func (b *bench) even(ctx context.Context) error {
	return b.until(ctx, "exact shares", func(owned map[string]int) bool {
		live := b.fleet.live()
		total := 0
		for _, p := range live {
			n, least := owned[p.name], b.o.buckets/len(live)
			if n < least || n > least+1 {
				return false
			}
			total += n
		}
		return len(owned) == len(live) && total == b.o.buckets
	})
}

// owned waits until every bucket has a live owner.
func (b *bench) owned(ctx context.Context) error {
	return b.until(ctx, "owners of all buckets", func(owned map[string]int) bool {
		total := 0
		for _, p := range b.fleet.live() {
			total += owned[p.name]
		}
		return total == b.o.buckets
	})
}

func (b *bench) until(ctx context.Context, what string, holds func(map[string]int) bool) error {
	ctx, cancel := context.WithTimeout(ctx, benchWithin)
	defer cancel()
	for {
		owned, err := b.db.shares(ctx)
		if err == nil && holds(owned) {
			return nil
		}
		if !pause(ctx, 20*time.Millisecond) {
			return fmt.Errorf("no %s within %s: %v: %w", what, benchWithin, owned, errors.Join(err, context.Cause(ctx)))
		}
	}
}
