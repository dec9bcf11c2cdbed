//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/kiroku"
)

const (
	appendEvery  = 25 * time.Millisecond
	mostAtOnce   = 100 // events of one append
	catchUp      = 2   // seconds of events that may be made up for after an outage
	appendWithin = 5 * time.Second
)

// load appends events at a steady rate.
type load struct {
	pool     *pgxpool.Pool
	streams  []string
	rate     int
	rng      *rand.Rand
	appended atomic.Int64 // events that the server said it has
	failed   atomic.Int64 // appends that failed or whose outcome is not known
}

func newLoad(pool *pgxpool.Pool, o options) *load {
	l := &load{pool: pool, rate: o.rate, rng: rand.New(rand.NewPCG(o.seed, 1))}
	for i := range o.streams {
		l.streams = append(l.streams, fmt.Sprintf("%s-%d", category, i))
	}
	return l
}

// run appends until ctx ends.
func (l *load) run(ctx context.Context) {
	tick := time.NewTicker(appendEvery)
	defer tick.Stop()
	owed, last := 0.0, time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			owed = min(owed+now.Sub(last).Seconds()*float64(l.rate), float64(catchUp*l.rate))
			last = now
		}
		for owed >= 1 && ctx.Err() == nil {
			n := min(int(owed), mostAtOnce, len(l.streams))
			if err := l.append(ctx, n); err != nil {
				break
			}
			owed -= float64(n)
		}
	}
}

// append appends one event to each of n streams.
func (l *load) append(ctx context.Context, n int) error {
	appends := make([]kiroku.StreamAppend, 0, n)
	for _, i := range l.rng.Perm(len(l.streams))[:n] {
		appends = append(appends, kiroku.StreamAppend{
			Stream: l.streams[i], Events: []kiroku.Event{{Type: "Happened", Data: json.RawMessage(`{"n": 1}`)}},
		})
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), appendWithin)
	defer cancel()
	if _, err := kiroku.Append(ctx, l.pool, appends...); err != nil {
		l.failed.Add(1)
		return err
	}
	l.appended.Add(int64(n))
	return nil
}
