package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// million is a store of ten times so many events of category orders, and one
// more in a hundred of category rare.
func million(events int) Load {
	n := 10 * events
	return Load{Events: n + n/99, Streams: 1000, Every: 100, RareStreams: 100}
}

// Shared is a database that several cases use, each with a subscription of its
// own: copying it takes too long.
func (s *Server) Shared(ctx context.Context, l Load) (*DB, error) {
	s.sharing.Lock()
	defer s.sharing.Unlock()
	if d := s.shared[l]; d != nil {
		return d, nil
	}
	d, err := s.Loaded(ctx, l)
	if err != nil {
		return nil, err
	}
	s.shared[l] = d
	return d, nil
}

// onShared drains a category of the shared store.
func (d drain) onShared(ctx context.Context, e *Env) (Values, error) {
	db, err := e.Server.Shared(ctx, d.load)
	if err != nil {
		return nil, err
	}
	return d.on(ctx, db)
}

func sparseQuestion(events int) Question {
	const rare, dense = Ours + ", 1 % of the log", Ours + ", 99 % of the log"
	l := million(events)
	return Question{
		ID: Sparse, Title: "A category that is 1 % of a million events", Primary: "rate", Unit: "events/s",
		Cases: []Case{
			{Name: rare, Options: "Shards 16; 10,101 events in 100 streams", Run: drain{load: l, category: Rare, buckets: usualBuckets}.onShared},
			{Name: dense, Options: "Shards 16; the first 200,000 of 1,000,000 events in 1,000 streams", Run: drain{load: l, category: Orders, buckets: usualBuckets, stop: 2 * events}.onShared},
		},
		Goals: []Goal{{Text: "the rare category's rate ÷ the dense one's", Figure: Ratio(rare, dense, "rate"), Target: 0.35}},
	}
}

// footprint is what a worker of its own process takes that has nothing to do.
func footprint(buckets int) func(context.Context, *Env) (Values, error) {
	return func(ctx context.Context, e *Env) (Values, error) {
		db, err := e.Server.Loaded(ctx, Load{Events: 1000, Streams: 100})
		if err != nil {
			return nil, err
		}
		defer db.Close()
		spec := childSpec{DSN: db.DSN, Subscription: "footprint", Category: Orders, Buckets: buckets, Events: 1000, Streams: 100}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		c, err := startChild(ctx, spec)
		if err != nil {
			return nil, err
		}
		err = errors.Join(even(ctx, db, spec.Subscription, buckets, 1), fleet{spec: spec}.wait(ctx, []*child{c}))
		if err == nil {
			err = sleep(ctx, time.Second)
		}
		if err != nil {
			return nil, err
		}
		s, err := c.memory(ctx)
		return Values{"KiB": float64(s.Heap) / (1 << 10), "goroutines": float64(s.Goroutines)}, errors.Join(err, c.stop())
	}
}

// peakOf drains a million in a process of its own.
func peakOf(l Load) func(context.Context, *Env) (Values, error) {
	return func(ctx context.Context, e *Env) (Values, error) {
		db, err := e.Server.Shared(ctx, l)
		if err != nil {
			return nil, err
		}
		spec := childSpec{DSN: db.DSN, Subscription: fmt.Sprintf("drain-%d", subscriptions.Add(1)), Category: Orders, Buckets: usualBuckets}
		spec.Events, spec.Streams = l.Of(Orders)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		began := time.Now()
		c, err := startChild(ctx, spec)
		if err != nil {
			return nil, err
		}
		f := fleet{spec: spec}
		if err := f.wait(ctx, []*child{c}); err != nil {
			return nil, err
		}
		took := time.Since(began)
		err = errors.Join(c.stop(), f.check([]*child{c}))
		return Values{"MiB": float64(c.said().Peak) / (1 << 20), "rate": float64(spec.Events) / took.Seconds()}, err
	}
}

func memoryQuestions(events int) []Question {
	const few, many = Ours + ", 16 buckets", Ours + ", 1,024 buckets"
	per := func(value string) func(View) (float64, bool) {
		return func(v View) (float64, bool) {
			a, okA := v.Of(few, value)
			b, okB := v.Of(many, value)
			return (b - a) / (1024 - 16), okA && okB
		}
	}
	return []Question{
		{
			ID: Footprint, Title: "Memory of an idle worker process: heap and stacks", Primary: "KiB", Unit: "KiB", Low: true,
			Cases: []Case{
				{Name: few, Options: "Shards 16", Once: true, Run: footprint(16)},
				{Name: many, Options: "Shards 1,024", Once: true, Run: footprint(1024)},
			},
			Goals: []Goal{
				{Text: "memory per idle bucket, from 16 to 1,024", Figure: per("KiB"), Target: 16, Most: true, Unit: "KiB"},
				{Text: "goroutines per idle bucket", Figure: per("goroutines"), Target: 0.001, Most: true, Unit: "goroutines"},
			},
		},
		{
			ID: Peak, Title: "Memory of a process that drains a million events", Primary: "MiB", Unit: "MiB resident at most", Low: true,
			Cases: []Case{{Name: Ours, Options: "Shards 16, 1,000,000 events in 1,000 streams", Once: true, Run: peakOf(million(events))}},
			Goals: []Goal{{Text: "most resident memory", Figure: Value(Ours, "MiB"), Target: 256, Most: true, Unit: "MiB"}},
		},
	}
}
