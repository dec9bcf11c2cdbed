//go:build peers

package main

import (
	"context"
	"database/sql"
	"errors"
	"time"

	sqlv3 "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/suisha-go/suisha/internal/bench"
)

// sql3Options are how a subscriber of watermill-sql v3 is made. It goes through
// database/sql and pgx.
type sql3Options struct {
	batch int // 0: the default
	poll  time.Duration
}

func (o sql3Options) schema() sqlv3.SchemaAdapter {
	return sqlv3.DefaultPostgreSQLSchema{SubscribeBatchSize: o.batch}
}

func (o sql3Options) subscriber(db *sql.DB, quiet *bench.Quiet) (message.Subscriber, error) {
	config := sqlv3.SubscriberConfig{
		ConsumerGroup: "bench", SchemaAdapter: o.schema(), OffsetsAdapter: sqlv3.DefaultPostgreSQLOffsetsAdapter{},
		InitializeSchema: true, PollInterval: o.poll,
	}
	return sqlv3.NewSubscriber(db, config, quiet)
}

func (o sql3Options) publisher(db *sql.DB, quiet *bench.Quiet) (message.Publisher, error) {
	return sqlv3.NewPublisher(db, sqlv3.PublisherConfig{SchemaAdapter: o.schema(), AutoInitializeSchema: true}, quiet)
}

// open makes a database/sql handle with as many idle connections as it wants.
func open(pool *pgxpool.Pool) *sql.DB {
	db := stdlib.OpenDB(*pool.Config().ConnConfig)
	db.SetMaxIdleConns(32)
	return db
}

// closing closes a publisher's handle with it.
type closing struct {
	message.Publisher
	db *sql.DB
}

// Close implements message.Publisher.
func (c closing) Close() error { return errors.Join(c.Publisher.Close(), c.db.Close()) }

func (o sql3Options) drain(b bench.Backlog) func(context.Context, *bench.Env) (bench.Values, error) {
	return func(ctx context.Context, e *bench.Env) (bench.Values, error) {
		b := within(e, b)
		db, err := watermillTable(ctx, e, "watermill-sql v3", b, func(pool *pgxpool.Pool) (message.Publisher, error) {
			handle := open(pool)
			p, err := sql3Options{}.publisher(handle, &bench.Quiet{})
			return closing{p, handle}, err
		})
		if err != nil {
			return nil, err
		}
		defer db.Close()
		handle := open(db.Pool)
		defer func() { _ = handle.Close() }()
		quiet := &bench.Quiet{}
		return b.Drain(ctx, bench.Orders, quiet, func() (message.Subscriber, error) { return o.subscriber(handle, quiet) })
	}
}

func sql3Drains(events int) []bench.Case {
	whole := bench.Backlog{Events: events, Ordered: true}
	part := bench.Backlog{Events: events, Ordered: true, Stop: -1}
	return []bench.Case{
		{Name: sql3 + ", default", Peer: sql3, Options: "SubscribeBatchSize 100; database/sql over pgx", Note: bench.PartNote, Once: true, Run: sql3Options{}.drain(part)},
		{Name: sql3 + ", batch 1,000", Peer: sql3, Options: "SubscribeBatchSize 1,000", Run: sql3Options{batch: 1000}.drain(whole)},
		{Name: sql3 + ", batch 10,000", Peer: sql3, Options: "SubscribeBatchSize 10,000", Run: sql3Options{batch: 10_000}.drain(whole)},
	}
}
