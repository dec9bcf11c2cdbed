package bench

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

//go:embed sql/owners.sql
var ownersSQL string

// fleet is a drain by processes.
type fleet struct {
	workers int
	spec    childSpec // of each; DSN is filled in
	load    Load      // appended when all own what they are to own
}

// evenWithin bounds the time until every worker has its share.
const evenWithin = 60 * time.Second

func (f fleet) run(ctx context.Context, e *Env) (Values, error) {
	db, err := e.Server.Loaded(ctx, Load{})
	if err != nil {
		return nil, err
	}
	defer db.Close()
	f.spec.DSN = db.DSN
	f.spec.Events, f.spec.Streams = f.load.Of(Orders)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // kills what is left
	var all []*child
	for range f.workers {
		c, err := startChild(ctx, f.spec)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	if err := even(ctx, db, f.spec.Subscription, f.spec.Buckets, f.workers); err != nil {
		return nil, errors.Join(err, all[0].failure())
	}
	if err := pgx.BeginFunc(ctx, db.Pool, func(tx pgx.Tx) error { return f.load.Append(ctx, tx) }); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := f.wait(ctx, all); err != nil {
		return nil, err
	}
	took := time.Since(began)
	values := Values{"rate": float64(f.spec.Events) / took.Seconds()}
	var errs []error
	for _, c := range all {
		errs = append(errs, c.stop())
		values["least share"] = minPositive(values["least share"], float64(c.said().Count)/float64(f.spec.Events))
	}
	return values, errors.Join(append(errs, f.check(all))...)
}

func minPositive(a, b float64) float64 {
	if a == 0 {
		return b
	}
	return min(a, b)
}

// wait until together they have handled everything.
func (f fleet) wait(ctx context.Context, all []*child) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	last, moved := int64(-1), time.Now()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		var n int64
		for _, c := range all {
			if err := c.failure(); err != nil {
				return err
			}
			n += c.said().Count
		}
		switch {
		case n >= int64(f.spec.Events):
			return nil
		case n != last:
			last, moved = n, time.Now()
		case time.Since(moved) > stallAfter:
			return fmt.Errorf("%w: %d of %d came", errStalled, n, f.spec.Events)
		}
	}
}

// check: no event twice, and none instead of another.
func (f fleet) check(all []*child) error {
	var n, sum int64
	for _, c := range all {
		n += c.said().Count
		sum += c.said().Sum
	}
	if want := int64(f.spec.Events); n != want || sum != want*(want+1)/2 {
		return fmt.Errorf("%d events were handled of %d, or others than these", n, want)
	}
	return nil
}

// failure is what a child that has ended said.
func (c *child) failure() error {
	if s := c.said(); s.Err != "" {
		return errors.New(s.Err)
	}
	return nil
}

// even waits until so many workers own equally many of all buckets, one more or
// less.
func even(ctx context.Context, db *DB, subscription string, buckets, workers int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, evenWithin, errors.New("the buckets were not shared in time"))
	defer cancel()
	for {
		var owners, owned, least, most int
		if err := db.Pool.QueryRow(ctx, ownersSQL, subscription).Scan(&owners, &owned, &least, &most); err != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		if owners == workers && owned == buckets && most-least <= 1 {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func workersQuestion(events int) Question {
	const work, flight, few, many = 10 * time.Millisecond, 16, 2, 4
	l := Load{Events: min(events, 15_000), Streams: 1000}
	of := func(workers int) Case {
		return Case{
			Name:    fmt.Sprintf("%s, %d workers", Ours, workers),
			Options: fmt.Sprintf("processes; Shards 64, Concurrency 4, MaxInFlight %d each", flight),
			Run: fleet{workers: workers, load: l, spec: childSpec{
				Subscription: "fleet", Category: Orders, Buckets: 64, Concurrency: 4, MaxInFlight: flight, Work: work,
			}}.run,
		}
	}
	return Question{
		ID: Workers, Title: "More workers: handlers that take 10 ms, 16 at once in each process, 15,000 events", Primary: "rate", Unit: "events/s",
		Cases: []Case{of(few), of(many)},
		Goals: []Goal{{Text: "4 workers ÷ 2 workers", Figure: Ratio(of(many).Name, of(few).Name, "rate"), Target: 1.8}},
	}
}
