//go:build peers

package main

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/suisha-go/suisha/internal/bench"
)

func (o sql4Options) idle(ctx context.Context, e *bench.Env) (bench.Values, error) {
	db, err := e.Server.Empty(ctx)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	quiet := &bench.Quiet{}
	s, err := o.subscriber(db.Pool, quiet)
	if err != nil {
		return nil, err
	}
	stop, err := bench.RunRouter(ctx, s, bench.Orders, func(*message.Message) error { return nil })
	if err != nil {
		return nil, err
	}
	values, err := e.Server.Watch(ctx, db)
	return values, errors.Join(err, quiet.Stop(), stop())
}

func (o riverOptions) idle(ctx context.Context, e *bench.Env) (bench.Values, error) {
	db, err := riverDatabase(ctx, e, 0)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	logged := &catcher{}
	client, err := o.client(db.Pool, logged, func(job) {})
	if err != nil {
		return nil, err
	}
	if err := client.Start(ctx); err != nil {
		return nil, err
	}
	values, err := e.Server.Watch(ctx, db)
	return values, errors.Join(err, logged.err(), client.Stop(context.WithoutCancel(ctx)))
}

func addIdle(all []bench.Question) {
	bench.With(all, bench.Idle, []bench.Case{
		{Name: sql4Default, Peer: sql4, Options: "one subscriber, PollInterval 1s", Run: sql4Options{}.idle},
		{Name: sql4 + ", poll 10 ms", Peer: sql4, Options: "one subscriber, PollInterval 10ms", Run: sql4Options{poll: fastPoll}.idle},
		{Name: river + ", default", Peer: river, Options: "one client", Run: riverDefault.idle},
		{Name: river + ", its bench", Peer: river, Options: riverBench.String(), Run: riverBench.idle},
	})
}
