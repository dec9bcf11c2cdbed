package bench

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/suisha-go/suisha/router"
	"github.com/suisha-go/suisha/shardpub"
)

//go:embed sql/calls.sql
var callsSQL string

//go:embed sql/connections.sql
var connectionsSQL string

// errUncounted: the server has no pg_stat_statements.
var errUncounted = errors.New("statements cannot be counted: the server has no pg_stat_statements")

// Calls returns how often each statement ran in a database.
func (s *Server) Calls(ctx context.Context, database string) (map[string]int64, error) {
	if !s.Counts {
		return nil, errUncounted
	}
	rows, err := s.admin.Query(ctx, callsSQL, database)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := map[string]int64{}
	for rows.Next() {
		var (
			text  string
			calls int64
		)
		if err := rows.Scan(&text, &calls); err != nil {
			return nil, err
		}
		all[text] += calls
	}
	return all, rows.Err()
}

func (s *Server) total(ctx context.Context, database string) (n int64, err error) {
	all, err := s.Calls(ctx, database)
	for _, calls := range all {
		n += calls
	}
	return n, err
}

// How long an idle worker is watched, and what it may do before.
const (
	idleSettle = 6 * time.Second
	idleWatch  = time.Minute // in which a statement more or less is 5 %
)

// Watch measures what goes on in a database while nothing happens.
func (s *Server) Watch(ctx context.Context, d *DB) (Values, error) {
	if err := sleep(ctx, idleSettle); err != nil {
		return nil, err
	}
	before, err := s.total(ctx, d.Name)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := sleep(ctx, idleWatch); err != nil {
		return nil, err
	}
	after, err := s.total(ctx, d.Name)
	if err != nil {
		return nil, err
	}
	took := time.Since(began)
	var connections int
	err = s.admin.QueryRow(ctx, connectionsSQL, d.Name).Scan(&connections)
	return Values{"statements": float64(after-before) / took.Seconds(), "connections": float64(connections)}, err
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// idle is a worker that has nothing to do any more.
func idle(buckets, subscriptions, streams int) func(context.Context, *Env) (Values, error) {
	return func(ctx context.Context, e *Env) (Values, error) {
		db, err := e.Server.Loaded(ctx, Load{Events: max(streams, 1000), Streams: streams})
		if err != nil {
			return nil, err
		}
		defer db.Close()
		db.Pool.Reset() // what warmed it up
		var bad troubles
		worker, err := router.New(db.Pool, router.Config{Shards: buckets, Node: shardpub.NodeConfig{OnError: bad.note}}, watermill.NopLogger{})
		if err != nil {
			return nil, err
		}
		for i := range subscriptions {
			worker.AddConsumerHandler(fmt.Sprintf("idle-%d", i), Orders, func(*message.Message) error { return nil })
		}
		if err := worker.Start(ctx); err != nil {
			return nil, err
		}
		values, err := e.Server.Watch(ctx, db)
		return values, errors.Join(err, bad.err(), worker.Stop(context.WithoutCancel(ctx)))
	}
}

func idleQuestion() Question {
	const many = Ours + ", 64 buckets, 8 subscriptions"
	const few, most, streams = Ours + ", 16 buckets", Ours + ", 1,024 buckets", Ours + ", 16 buckets, 100,000 streams"
	return Question{
		ID: Idle, Title: "A worker that has nothing to do", Primary: "statements", Unit: "statements/s", Low: true, Together: true,
		Cases: []Case{
			{Name: many, Options: "Shards 64, 8 handlers", Run: idle(64, 8, 100)},
			{Name: few, Options: "Shards 16", Run: idle(16, 1, 100)},
			{Name: most, Options: "Shards 1,024", Run: idle(1024, 1, 100)},
			{Name: streams, Options: "Shards 16", Run: idle(16, 1, 100_000)},
		},
		Goals: []Goal{
			{Text: "64 buckets, 8 subscriptions: statements", Figure: Value(many, "statements"), Target: 0.5, Most: true, Unit: "/s"},
			{Text: "64 buckets, 8 subscriptions: connections", Figure: Value(many, "connections"), Target: 3, Most: true, Unit: "connections"},
			{Text: "1,024 buckets ÷ 16: statements", Figure: Ratio(few, most, "statements"), Target: 1.1, Most: true},
			{Text: "100,000 streams ÷ 100: statements", Figure: Ratio(few, streams, "statements"), Target: 1.1, Most: true},
		},
	}
}

// busy is a drain whose statements are counted.
func busy(l Load) func(context.Context, *Env) (Values, error) {
	return func(ctx context.Context, e *Env) (Values, error) {
		db, err := e.Server.Loaded(ctx, l)
		if err != nil {
			return nil, err
		}
		defer db.Close()
		d := drain{load: l, category: Orders, buckets: usualBuckets, stop: l.Events}
		if _, err := d.on(ctx, db); err != nil {
			return nil, err
		}
		all, err := e.Server.Calls(ctx, db.Name)
		if err != nil {
			return nil, err
		}
		reads := map[string]float64{}
		for text, calls := range all {
			reads[kind(text)] += float64(calls)
		}
		if reads["keys"] == 0 {
			return nil, errors.New("no read of keys was found among the statements")
		}
		return Values{
			"events per key read":             float64(l.Events) / reads["keys"],
			"event reads per key read":        reads["events"] / reads["keys"],
			"directory reads per key read":    reads["streams"] / reads["keys"],
			"checkpoint writes":               reads["checkpoints"],
			"other statements, start and end": reads["other"],
		}, nil
	}
}

// kind tells what a statement of a worker is about.
func kind(text string) string {
	has := func(part string) bool { return strings.Contains(text, part) }
	switch {
	case has("information_schema") || has("pg_"):
		return "other"
	case has("update kiroku.subscriptions") || has("insert into kiroku.subscriptions"):
		return "checkpoints"
	case has("kiroku.stream_events") && has("order by") && has("limit"):
		return "keys"
	case has("from kiroku.events") && has("event_id = any"):
		return "events"
	case has("hashtextextended") && has("from kiroku.streams"):
		return "streams"
	}
	return "other"
}

func busyQuestion(events int) Question {
	l := usual(events)
	const perKeyRead = "events per key read"
	return Question{
		ID: Busy, Title: "A worker at full speed: what it asks the database", Primary: perKeyRead, Unit: "events per key read",
		Cases: []Case{{Name: Ours, Options: "Shards 16, the drain of 100,000", Once: true, Run: busy(l)}},
		Goals: []Goal{
			{Text: "events per key read", Figure: Value(Ours, perKeyRead), Target: 50, Unit: "events"},
			{Text: "event reads per key read", Figure: Value(Ours, "event reads per key read"), Target: 1, Most: true, Unit: "reads"},
			{Text: "directory reads per key read", Figure: Value(Ours, "directory reads per key read"), Target: 1, Most: true, Unit: "reads"},
		},
	}
}
