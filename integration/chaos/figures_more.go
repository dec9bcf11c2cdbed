//go:build unix

package main

import (
	"context"
	_ "embed"
	"fmt"
	"math"
	"syscall"
	"time"
)

//go:embed sql/changes.sql
var changesSQL string

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

// measureSteady lets workers of different weights be, and counts what moves.
func measureSteady(ctx context.Context, b *bench) ([]figure, error) {
	weights := []int{1, 2, 1}
	for _, weight := range weights {
		if _, err := b.fleet.start(ctx, func(w *workerSpec) { w.Weight = weight }); err != nil {
			return nil, err
		}
	}
	fair := func(owned map[string]int) bool { return unfairness(b.fleet.live(), owned, b.o.buckets) <= 1 }
	if err := b.until(ctx, "shares by weight", fair); err != nil {
		return nil, err
	}
	pause(ctx, time.Second)
	since, worst := time.Now(), 0.0
	for time.Since(since) < steadyFor && pause(ctx, time.Second) {
		owned, err := b.db.shares(ctx)
		if err != nil {
			return nil, err
		}
		worst = max(worst, unfairness(b.fleet.live(), owned, b.o.buckets))
	}
	moved, err := ask[int64](ctx, b.db, changesSQL, since)
	if err != nil {
		return nil, err
	}
	note := fmt.Sprintf("%d moves, at most %.0f buckets off the exact share; %.0f s with weights %v", moved[0], worst, time.Since(since).Seconds(), weights)
	return []figure{{Name: "steady state", N: len(weights), Note: note}}, nil
}

// unfairness is how many buckets the worst share is off.
func unfairness(live []*process, owned map[string]int, buckets int) float64 {
	total, worst := 0, 0.0
	for _, p := range live {
		total += max(p.spec.Weight, 1)
	}
	for _, p := range live {
		exact := float64(buckets*max(p.spec.Weight, 1)) / float64(total)
		worst = max(worst, math.Abs(float64(owned[p.name])-exact))
	}
	return worst
}
