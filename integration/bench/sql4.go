//go:build peers

package main

import (
	"context"
	_ "embed"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	sqlv4 "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/internal/bench"
)

//go:embed sql/vacuum_watermill_command.sql
var vacuumWatermillSQL string

//go:embed sql/warm_watermill.sql
var warmWatermillSQL string

// noDeadline turns the deadline of acks off.
var noDeadline time.Duration

// sql4Options are how a subscriber of watermill-sql v4 is made.
type sql4Options struct {
	batch   int  // 0: the default
	queue   bool // the queue schema, which deletes what is acked
	noTimer bool // no ack deadline
	poll    time.Duration
}

func (o sql4Options) schema() sqlv4.SchemaAdapter {
	if o.queue {
		return sqlv4.PostgreSQLQueueSchema{SubscribeBatchSize: o.batch}
	}
	return sqlv4.DefaultPostgreSQLSchema{SubscribeBatchSize: o.batch}
}

func (o sql4Options) subscriber(pool *pgxpool.Pool, quiet *bench.Quiet) (message.Subscriber, error) {
	config := sqlv4.SubscriberConfig{SchemaAdapter: o.schema(), InitializeSchema: true, PollInterval: o.poll}
	if o.noTimer {
		config.AckDeadline = &noDeadline
	}
	if o.queue {
		config.OffsetsAdapter = sqlv4.PostgreSQLQueueOffsetsAdapter{DeleteOnAck: true}
	} else {
		config.ConsumerGroup, config.OffsetsAdapter = "bench", sqlv4.DefaultPostgreSQLOffsetsAdapter{}
	}
	return sqlv4.NewSubscriber(sqlv4.BeginnerFromPgx(pool), config, quiet)
}

func (o sql4Options) publisher(pool *pgxpool.Pool, quiet *bench.Quiet) (message.Publisher, error) {
	return sqlv4.NewPublisher(sqlv4.BeginnerFromPgx(pool), sqlv4.PublisherConfig{SchemaAdapter: o.schema(), AutoInitializeSchema: true}, quiet)
}

// fill writes messages from to to-1 with the peer's own publisher.
func fill(publisher message.Publisher, from, to int) error {
	const batch = 1000
	for at := from; at < to; at += batch {
		var all []*message.Message
		for n := at; n < min(at+batch, to); n++ {
			all = append(all, message.NewMessage(watermill.NewUUID(), bench.Payload(n)))
		}
		if err := publisher.Publish(bench.Orders, all...); err != nil {
			return err
		}
	}
	return nil
}

// drain measures one subscriber and one handler.
func (o sql4Options) drain(b bench.Backlog) func(context.Context, *bench.Env) (bench.Values, error) {
	return func(ctx context.Context, e *bench.Env) (bench.Values, error) {
		b := within(e, b)
		key := "watermill-sql v4"
		if o.queue {
			key += " queue"
		}
		db, err := watermillTable(ctx, e, key, b, func(pool *pgxpool.Pool) (message.Publisher, error) {
			return sql4Options{queue: o.queue}.publisher(pool, &bench.Quiet{})
		})
		if err != nil {
			return nil, err
		}
		defer db.Close()
		quiet := &bench.Quiet{}
		return b.Drain(ctx, bench.Orders, quiet, func() (message.Subscriber, error) { return o.subscriber(db.Pool, quiet) })
	}
}

// within gives the backlog its bounds unless all is to be drained: Stop below 0
// asks for the part that bench.Env.Part chooses.
func within(e *bench.Env, b bench.Backlog) bench.Backlog {
	if b.Stop < 0 {
		b.Skip, b.Stop, b.Within = e.Part(b.Events)
	}
	if e.Full {
		b.Within = 0
	}
	return b
}

// watermillTable makes a database with a table of watermill-sql that holds the
// messages of a backlog.
func watermillTable(ctx context.Context, e *bench.Env, key string, b bench.Backlog, publisher func(*pgxpool.Pool) (message.Publisher, error)) (*bench.DB, error) {
	db, err := e.Server.Prepared(ctx, key+bench.Span(b.Skip, b.Events), func(ctx context.Context, d *bench.DB) error {
		p, err := publisher(d.Pool)
		if err != nil {
			return err
		}
		if err := errors.Join(fill(p, b.Skip, b.Events), p.Close()); err != nil {
			return err
		}
		_, err = d.Pool.Exec(ctx, vacuumWatermillSQL)
		return err
	})
	if err != nil {
		return nil, err
	}
	var n int64
	if err := db.Pool.QueryRow(ctx, warmWatermillSQL).Scan(&n); err != nil {
		db.Close()
		return nil, err
	}
	return db, nil
}

func sql4Drains(events int) []bench.Case {
	whole := bench.Backlog{Events: events, Ordered: true}
	part := bench.Backlog{Events: events, Ordered: true, Stop: -1}
	return []bench.Case{
		{Name: sql4Default, Peer: sql4, Options: "SubscribeBatchSize 100", Note: bench.PartNote, Once: true, Run: sql4Options{}.drain(part)},
		{Name: sql4 + ", batch 1,000", Peer: sql4, Options: "SubscribeBatchSize 1,000", Run: sql4Options{batch: 1000}.drain(whole)},
		{Name: sql4 + ", batch 10,000", Peer: sql4, Options: "SubscribeBatchSize 10,000", Run: sql4Options{batch: 10_000}.drain(whole)},
		{Name: sql4 + ", batch 10,000, no deadline", Peer: sql4, Options: "SubscribeBatchSize 10,000, AckDeadline 0", Run: sql4Options{batch: 10_000, noTimer: true}.drain(whole)},
		{Name: sql4 + ", queue, batch 100", Peer: sql4, Options: "PostgreSQLQueueSchema, DeleteOnAck", Run: sql4Options{queue: true}.drain(whole)},
		{Name: sql4 + ", queue, batch 1,000", Peer: sql4, Options: "PostgreSQLQueueSchema, DeleteOnAck, SubscribeBatchSize 1,000", Run: sql4Options{queue: true, batch: 1000}.drain(whole)},
		{Name: sql4 + ", queue, batch 10,000, no deadline", Peer: sql4, Options: "PostgreSQLQueueSchema, DeleteOnAck, SubscribeBatchSize 10,000, AckDeadline 0", Run: sql4Options{queue: true, batch: 10_000, noTimer: true}.drain(whole)},
	}
}
