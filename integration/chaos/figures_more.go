//go:build unix

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

//go:embed sql/changes.sql
var changesSQL string

//go:embed sql/letters.sql
var lettersSQL string

//go:embed sql/spent.sql
var spentSQL string

// measureZombies freezes eight workers of nine for longer than their leases last,
// again and again, and counts what they write after they thaw.
func measureZombies(ctx context.Context, b *bench) ([]figure, error) {
	b.shorten()
	all, err := b.start(ctx, 9)
	if err != nil {
		return nil, err
	}
	tries := 0
	for tries < 200 {
		if err := b.even(ctx); err != nil {
			return nil, err
		}
		frozen := all[:8]
		owned, err := b.db.shares(ctx)
		if err != nil {
			return nil, err
		}
		all = append(append([]*process(nil), all[1:]...), all[0]) // another survives next time
		for _, p := range frozen {
			p.signal(syscall.SIGSTOP)
		}
		err = b.until(ctx, "one owner of all buckets", func(now map[string]int) bool {
			return now[all[7].name] == b.o.buckets
		})
		for _, p := range frozen {
			p.signal(syscall.SIGCONT)
			if owned[p.name] > 0 {
				tries++
			}
		}
		if err != nil {
			return nil, err
		}
		pause(ctx, 2*time.Second)
	}
	b.still()
	wrote, err := ask[string](ctx, b.db, zombiesSQL)
	if err != nil {
		return nil, err
	}
	f := figure{Name: "writes of thawed workers", N: tries, Note: fmt.Sprintf("%d accepted; TTL 3 s, 8 of 9 frozen at once", len(wrote)), Slowest: wrote}
	return []figure{f}, nil
}

// steadyFor is how long nothing happens.
const steadyFor = 10 * time.Minute

// measureSteady lets two groups be, one of equal workers and one of different ones,
// and counts what moves in them.
func measureSteady(ctx context.Context, b *bench) ([]figure, error) {
	other, err := newBench(ctx, b.o, b.fleet.log, true)
	if err != nil {
		return nil, err
	}
	defer other.close()
	var groups sync.WaitGroup
	figures, errs := make([]figure, 2), make([]error, 2)
	groups.Go(func() { figures[0], errs[0] = b.steady(ctx, 1, 1, 1) })
	groups.Go(func() { figures[1], errs[1] = other.steady(ctx, 1, 2, 4) })
	groups.Wait()
	return figures, errors.Join(errs...)
}

// steady is a group of workers of some weights.
func (b *bench) steady(ctx context.Context, weights ...int) (figure, error) {
	for _, weight := range weights {
		if _, err := b.fleet.start(ctx, func(w *workerSpec) { w.Weight = weight }); err != nil {
			return figure{}, err
		}
	}
	fair := func(owned map[string]int) bool {
		off, _ := unfairness(b.fleet.live(), owned, b.o.buckets)
		return off < 1
	}
	if err := b.until(ctx, "shares by weight", fair); err != nil {
		return figure{}, err
	}
	pause(ctx, time.Second)
	since, worst, worstPart := time.Now(), 0.0, 0.0
	for time.Since(since) < steadyFor && pause(ctx, time.Second) {
		owned, err := b.db.shares(ctx)
		if err != nil {
			return figure{}, err
		}
		off, part := unfairness(b.fleet.live(), owned, b.o.buckets)
		worst, worstPart = max(worst, off), max(worstPart, part)
	}
	moved, err := ask[int64](ctx, b.db, changesSQL, since)
	if err != nil {
		return figure{}, err
	}
	note := fmt.Sprintf("%d moves in %.0f s; at most %.2f buckets, %.1f %%, off the exact share", moved[0], time.Since(since).Seconds(), worst, 100*worstPart)
	return figure{Name: fmt.Sprintf("steady state, weights %v", weights), N: len(weights), Note: note}, nil
}

// unfairness is how many buckets the worst share is off, and what part of it.
func unfairness(live []*process, owned map[string]int, buckets int) (off, part float64) {
	total := 0
	for _, p := range live {
		total += max(p.spec.Weight, 1)
	}
	for _, p := range live {
		exact := float64(buckets*max(p.spec.Weight, 1)) / float64(total)
		far := math.Abs(float64(owned[p.name]) - exact)
		off, part = max(off, far), max(part, far/exact)
	}
	return off, part
}

// How long idle workers are watched, and what they may do before.
const (
	idleSettle = 15 * time.Second
	idleWatch  = time.Minute
)

// measureIdle counts what two workers that have nothing to do ask of the server.
func measureIdle(ctx context.Context, b *bench) ([]figure, error) {
	all, err := b.start(ctx, 2)
	if err != nil {
		return nil, err
	}
	if err := b.even(ctx); err != nil {
		return nil, err
	}
	pause(ctx, idleSettle)
	type spent struct{ Transactions, Connections int64 }
	look := func() (spent, error) {
		rows, err := b.db.pool.Query(ctx, spentSQL, []string{all[0].name, all[1].name})
		if err != nil {
			return spent{}, err
		}
		return pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[spent])
	}
	before, err := look()
	if err != nil {
		return nil, err
	}
	since := time.Now()
	pause(ctx, idleWatch)
	after, err := look()
	if err != nil {
		return nil, err
	}
	each := float64(after.Transactions-before.Transactions) / time.Since(since).Seconds() / float64(len(all))
	note := fmt.Sprintf("%.2f transactions per second each, on %.1f connections; %.0f s", each, float64(after.Connections)/float64(len(all)), idleWatch.Seconds())
	return []figure{{Name: "idle workers", N: len(all), Note: note}}, nil
}
