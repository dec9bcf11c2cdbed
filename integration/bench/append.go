//go:build peers

package main

import (
	"context"
	_ "embed"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"
	riverqueue "github.com/riverqueue/river"

	"github.com/suisha-go/suisha/internal/bench"
)

//go:embed sql/messages.sql
var messagesSQL string

//go:embed sql/jobs.sql
var jobsSQL string

// calls is a load of appends, as in the cases that the repository has.
type calls struct{ bench.Calls }

// publishing appends with a Watermill publisher. The first call makes its table,
// so that is done before.
func (c calls) publishing(p message.Publisher, count func(context.Context) (int64, error)) (bench.Target, error) {
	if err := p.Publish(bench.Orders, bench.Calls{Batch: 1}.Messages(0, "")...); err != nil {
		return bench.Target{}, errors.Join(err, p.Close())
	}
	return bench.Target{
		Call: func(_ context.Context, _, turn int) error { return p.Publish(bench.Orders, c.Messages(turn, "")...) },
		Count: func(ctx context.Context) (int64, error) {
			n, err := count(ctx)
			return n - 1, err // the first
		},
		Close: p.Close,
	}, nil
}

func (c calls) sql4(ctx context.Context, e *bench.Env) (bench.Values, error) {
	db, err := e.Server.Empty(ctx)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	pool, err := db.Connect(ctx, c.Conns)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	p, err := sql4Options{}.publisher(pool, &bench.Quiet{})
	if err != nil {
		return nil, err
	}
	t, err := c.publishing(p, bench.Counting(pool, messagesSQL))
	if err != nil {
		return nil, err
	}
	return c.Run(ctx, e, t)
}

func (c calls) sql3(ctx context.Context, e *bench.Env) (bench.Values, error) {
	db, err := e.Server.Empty(ctx)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	handle := open(db.Pool)
	defer func() { _ = handle.Close() }()
	handle.SetMaxOpenConns(int(c.Conns))
	p, err := sql3Options{}.publisher(handle, &bench.Quiet{})
	if err != nil {
		return nil, err
	}
	t, err := c.publishing(p, bench.Counting(db.Pool, messagesSQL))
	if err != nil {
		return nil, err
	}
	return c.Run(ctx, e, t)
}

func (c calls) nats(ctx context.Context, e *bench.Env) (bench.Values, error) {
	b, err := startBroker()
	if err != nil {
		return nil, err
	}
	defer b.close()
	if err := b.fill(0); err != nil {
		return nil, err
	}
	p, err := b.publisher(&bench.Quiet{})
	if err != nil {
		return nil, err
	}
	t, err := c.publishing(p, func(context.Context) (int64, error) { return b.count() })
	if err != nil {
		return nil, err
	}
	return c.Run(ctx, e, t)
}

func (c calls) river(ctx context.Context, e *bench.Env) (bench.Values, error) {
	db, err := riverDatabase(ctx, e, 0)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	pool, err := db.Connect(ctx, c.Conns)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	client, err := riverDefault.client(pool, &catcher{}, func(job) {})
	if err != nil {
		return nil, err
	}
	return c.Run(ctx, e, bench.Target{
		Call: func(ctx context.Context, _, turn int) error {
			if c.Batch == 1 {
				_, err := client.Insert(ctx, job{N: turn, Pad: pad}, nil)
				return err
			}
			all := make([]riverqueue.InsertManyParams, c.Batch)
			for i := range all {
				all[i].Args = job{N: turn*c.Batch + i, Pad: pad}
			}
			_, err := client.InsertManyFast(ctx, all)
			return err
		},
		Count: bench.Counting(pool, jobsSQL),
		Close: func() error { return nil },
	})
}

func (c calls) cases() []bench.Case {
	const conns = "16 connections"
	return []bench.Case{
		{Name: sql3 + ", Publisher", Peer: sql3, Options: conns, Run: c.sql3},
		{Name: sql4 + ", Publisher", Peer: sql4, Options: conns, Run: c.sql4},
		{Name: river + ", Insert or InsertManyFast", Peer: river, Options: conns, Once: true, Run: c.river},
		{Name: nats + ", Publisher", Peer: nats, Options: "watermill-nats/nats; embedded server, file store synced lazily", Once: true, Run: c.nats},
	}
}

func addAppends(all []bench.Question) {
	bench.With(all, bench.Append1, calls{bench.Single}.cases())
	bench.With(all, bench.Append16, calls{bench.Many}.cases(),
		bench.Goal{Text: "suisha ÷ watermill-sql v4's publisher, 16 goroutines", Figure: bench.RatioToBest(bench.Ours, sql4, "rate"), Target: 1})
	bench.With(all, bench.Batches, calls{bench.ManyMany}.cases())
}
