//go:build peers

package main

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/suisha-go/suisha/internal/bench"
)

// fastPoll is the poll interval of tuned subscribers.
const fastPoll = 10 * time.Millisecond

// between measures from a publisher to a handler of a Watermill router.
func between(ctx context.Context, p message.Publisher, s message.Subscriber, quiet *bench.Quiet) (bench.Values, error) {
	watch := bench.NewStopwatch()
	stop, err := bench.RunRouter(ctx, s, bench.Orders, watch.Handler)
	if err != nil {
		return nil, err
	}
	values, err := watch.Measure(ctx, bench.Publishing(p))
	return values, errors.Join(err, quiet.Stop(), stop(), p.Close())
}

func (o sql4Options) latency(ctx context.Context, e *bench.Env) (bench.Values, error) {
	db, err := e.Server.Empty(ctx)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	quiet := &bench.Quiet{}
	p, errP := o.publisher(db.Pool, quiet)
	s, errS := o.subscriber(db.Pool, quiet)
	if err := errors.Join(errP, errS); err != nil {
		return nil, err
	}
	return between(ctx, p, s, quiet)
}

func (o sql3Options) latency(ctx context.Context, e *bench.Env) (bench.Values, error) {
	db, err := e.Server.Empty(ctx)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	handle := open(db.Pool)
	defer func() { _ = handle.Close() }()
	quiet := &bench.Quiet{}
	p, errP := o.publisher(handle, quiet)
	s, errS := o.subscriber(handle, quiet)
	if err := errors.Join(errP, errS); err != nil {
		return nil, err
	}
	return between(ctx, p, s, quiet)
}

func (o riverOptions) latency(ctx context.Context, e *bench.Env) (bench.Values, error) {
	db, err := riverDatabase(ctx, e, 0)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	watch, logged := bench.NewStopwatch(), &catcher{}
	client, err := o.client(db.Pool, logged, func(j job) { watch.Handled(j.N) })
	if err != nil {
		return nil, err
	}
	if err := client.Start(ctx); err != nil {
		return nil, err
	}
	values, err := watch.Measure(ctx, func(n int) error {
		_, err := client.Insert(ctx, job{N: n, Pad: pad}, nil)
		return err
	})
	return values, errors.Join(err, logged.err(), client.Stop(context.WithoutCancel(ctx)))
}

func natsLatency(ctx context.Context, _ *bench.Env) (bench.Values, error) {
	b, err := startBroker()
	if err != nil {
		return nil, err
	}
	defer b.close()
	if err := b.fill(0); err != nil {
		return nil, err
	}
	quiet := &bench.Quiet{}
	p, errP := b.publisher(quiet)
	s, errS := b.push(true, quiet)
	if err := errors.Join(errP, errS); err != nil {
		return nil, err
	}
	return between(ctx, p, s, quiet)
}

func addLatency(all []bench.Question) {
	polled := "PollInterval " + fastPoll.String()
	bench.With(all, bench.Latency, []bench.Case{
		{Name: sql3 + ", default", Peer: sql3, Options: "PollInterval 1s", Once: true, Run: sql3Options{}.latency},
		{Name: sql3 + ", poll 10 ms", Peer: sql3, Options: polled, Once: true, Run: sql3Options{poll: fastPoll}.latency},
		{Name: sql4Default, Peer: sql4, Options: "PollInterval 1s", Once: true, Run: sql4Options{}.latency},
		{Name: sql4 + ", poll 10 ms", Peer: sql4, Options: polled, Once: true, Run: sql4Options{poll: fastPoll}.latency},
		{Name: river + ", default", Peer: river, Options: riverDefault.String(), Once: true, Run: riverDefault.latency},
		{Name: river + ", its bench", Peer: river, Options: riverBench.String(), Once: true, Run: riverBench.latency},
		{Name: nats + ", push, AckAsync", Peer: nats, Options: "watermill-nats/nats; embedded server, file store synced lazily", Once: true, Run: natsLatency},
	},
		bench.Goal{Text: "p50: watermill-sql v4 by default ÷ suisha", Figure: bench.Ratio(bench.Ours, sql4Default, "p50"), Target: 100},
	)
}
