//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// measureMoves lets two workers join two others and leave again, until a thousand
// buckets have moved, and then asks the checker what that did.
func measureMoves(ctx context.Context, b *bench) ([]figure, error) {
	slow, err := b.start(ctx, 2)
	if err != nil {
		return nil, err
	}
	if err := b.even(ctx); err != nil {
		return nil, err
	}
	since := time.Now()
	for range 18 {
		joined, err := b.start(ctx, 2)
		if err != nil {
			return nil, err
		}
		if err := b.even(ctx); err != nil {
			return nil, err
		}
		pause(ctx, time.Second)
		if err := b.leave(ctx, joined); err != nil {
			return nil, err
		}
		pause(ctx, time.Second)
	}
	until := time.Now()
	events, err := b.drain(ctx, slow)
	if err != nil {
		return nil, err
	}
	findings, err := check(ctx, b.db, b.o.buckets)
	if err != nil {
		return nil, err
	}
	figures, err := moves(ctx, b.db, since, until)
	if err != nil {
		return nil, err
	}
	again, err := repeats(ctx, b.db, nil, 0)
	if err != nil {
		return figures, err
	}
	f, err := verdict(figures[0].N, events, again, findings)
	return append(figures, f), err
}

// leave stops workers at once and waits until the others have their buckets.
func (b *bench) leave(ctx context.Context, some []*process) error {
	var all sync.WaitGroup
	for _, p := range some {
		all.Go(func() { b.fleet.stop(p) })
	}
	all.Wait()
	return b.even(ctx)
}

// drain ends the load, has everything handled, and ends the workers. It puts quick
// handlers in the place of slow ones: a busy bucket would take them minutes.
func (b *bench) drain(ctx context.Context, slow []*process) (events int64, err error) {
	b.quit()
	b.parts.Wait()
	b.fleet.base.Work = drainWork
	if _, err := b.start(ctx, len(slow)); err != nil {
		return 0, err
	}
	if err := b.even(ctx); err != nil {
		return 0, err
	}
	if err := b.leave(ctx, slow); err != nil {
		return 0, err
	}
	if events, err = b.db.drain(ctx, b.o); err != nil {
		return events, err
	}
	b.still()
	return events, nil
}

// verdict is what planned moves did to the events: how many were repeated, lost,
// and handled out of order. It fails when the checker found what may not be.
// Repeats may be.
func verdict(moves int, events int64, again map[string]int, findings []finding) (figure, error) {
	f := figure{Name: "repeats, losses, order violations", N: moves}
	repeated, lost, disorder := 0, 0, 0
	for _, n := range again {
		repeated += n
	}
	var err error
	for _, found := range findings {
		switch found.Name {
		case foundLost:
			lost = found.Count
		case foundDisorder:
			disorder = found.Count
		}
		if found.Promised && found.Count > 0 {
			err = errors.Join(err, fmt.Errorf("%w: %d %s", errBroken, found.Count, found.Name))
			f.Slowest = append(f.Slowest, found.Evidence...)
		}
	}
	f.Note = fmt.Sprintf("%d, %d, %d of %d events, in planned moves under load", repeated, lost, disorder, events)
	return f, err
}
