package bench

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/kiroku"
)

//go:embed sql/everything.sql
var everythingSQL string

//go:embed sql/page_all.sql
var pageAllSQL string

//go:embed sql/keiro_read.sql
var keiroReadSQL string

// The limits, and keiro's own way, by name.
const (
	PageAll    = "limit: page $all by 1,000"
	Everything = "limit: one plain SELECT"
	BareRouter = "limit: bare Watermill router"
	KeiroRead  = "keiro's read statement"
)

// half and tenth are which part of a backlog is drained by a case whose cost per
// event falls with what is left of it.
const half, tenth = 2, 10

// partLimit is how long that may take.
const partLimit = 8 * time.Second

// PartNote is the note of cases that Part bounds.
const PartNote = "the cost of an event falls with the backlog, so only a tenth is drained, the one after the first half: a little easier than the average of all"

// Part says how many of n waiting events a case is spared, after how many it may
// stop, and for how long it is measured at most, where its cost per event falls
// with the backlog. If it falls in proportion, the cost at half the backlog is
// the average of a whole drain.
func (e *Env) Part(n int) (skip, stop int, limit time.Duration) {
	if e.Full {
		return 0, n, 0
	}
	return n / half, n/half + n/tenth, partLimit
}

// reader measures f, which reads a store that is loaded and returns how many
// events it saw.
func reader(l Load, f func(context.Context, *pgxpool.Pool, *Meter) error) func(context.Context, *Env) (Values, error) {
	return func(ctx context.Context, e *Env) (Values, error) {
		db, err := e.Server.Loaded(ctx, l)
		if err != nil {
			return nil, err
		}
		defer db.Close()
		m := NewMeter(l.Events, l.Streams, true, 0)
		began := time.Now()
		if err := f(ctx, db.Pool, m); err != nil {
			return nil, err
		}
		took := time.Since(began)
		if m.Count() != int64(l.Events) {
			return nil, errors.Join(fmt.Errorf("%d of %d events were read", m.Count(), l.Events), m.Err())
		}
		return Values{"rate": float64(m.Count()) / took.Seconds()}, m.Err()
	}
}

// everything is one statement that joins and returns all events.
func everything(ctx context.Context, pool *pgxpool.Pool, m *Meter) error {
	_, _, err := page(ctx, pool, m, everythingSQL)
	return err
}

// pageAll pages through the log with a checkpoint per page.
func pageAll(ctx context.Context, pool *pgxpool.Pool, m *Meter) error {
	for cursor := int64(0); ; {
		n, last, err := page(ctx, pool, m, pageAllSQL, cursor, 1000)
		if err != nil || n == 0 {
			return err
		}
		cursor = last
		if err := kiroku.SaveCheckpoint(ctx, pool, "pages", 0, kiroku.Position(cursor)); err != nil {
			return err
		}
	}
}

// page reads events and returns how many there were and where the last stands.
func page(ctx context.Context, pool *pgxpool.Pool, m *Meter, sql string, args ...any) (n int, last int64, err error) {
	rows, err := pool.Query(ctx, sql, args...)
	if err != nil {
		return 0, 0, err
	}
	defer rows.Close()
	var (
		id             [16]byte
		eventType      string
		stream         int64
		version        int64
		data, metadata []byte
		recorded       time.Time
	)
	for rows.Next() {
		if err := rows.Scan(&id, &eventType, &stream, &version, &last, &data, &metadata, &recorded); err != nil {
			return n, last, err
		}
		m.Note(data)
		n++
	}
	return n, last, rows.Err()
}

// keiroRead is a drain as keiro's worker reads: each bucket by itself, page after
// page of 100, a checkpoint per page. No router, no leases.
func keiroRead(l Load) func(context.Context, *Env) (Values, error) {
	const buckets, limit = 8, 100
	return func(ctx context.Context, e *Env) (Values, error) {
		db, err := e.Server.Loaded(ctx, l)
		if err != nil {
			return nil, err
		}
		defer db.Close()
		pool, err := db.Connect(ctx, buckets)
		if err != nil {
			return nil, err
		}
		defer pool.Close()
		skip, stop, within := e.Part(l.Events)
		m := NewMeter(l.Events, l.Streams, true, stop)
		m.Spare(skip)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		began := time.Now()
		var group sync.WaitGroup
		for bucket := range buckets {
			group.Go(func() {
				for cursor := int64(skip); ctx.Err() == nil; {
					n, last, err := page(ctx, pool, m, keiroReadSQL, Orders, cursor, limit, bucket, buckets)
					if err == nil && n > 0 {
						cursor = last
						err = kiroku.SaveCheckpoint(ctx, pool, "keiro", bucket, kiroku.Position(cursor))
					}
					if err != nil && ctx.Err() == nil {
						m.fail(err)
					}
					if err != nil || n == 0 {
						return
					}
				}
			})
		}
		n, err := m.Wait(ctx, within)
		took := time.Since(began)
		cancel()
		group.Wait()
		return Values{"rate": float64(n-int64(skip)) / took.Seconds()}, err
	}
}

// channel is a subscriber that has its messages in memory.
type channel struct {
	out chan *message.Message
}

func (c channel) Subscribe(context.Context, string) (<-chan *message.Message, error) {
	return c.out, nil
}
func (channel) Close() error { return nil }

// bareRouter hands messages that are ready to one handler of a Watermill router,
// with a context of its own each and 64 in flight.
func bareRouter(ctx context.Context, e *Env) (Values, error) {
	const streams, flight = 1000, 64
	payloads := make([][]byte, e.Events)
	for i := range payloads {
		payloads[i] = Payload(i)
	}
	m := NewMeter(e.Events, streams, false, 0)
	source := channel{out: make(chan *message.Message)}
	began := time.Now()
	stop, err := RunRouter(ctx, source, Orders, handler(m, 0))
	if err != nil {
		return nil, err
	}
	var group sync.WaitGroup
	parts := make(chan []byte)
	for range flight {
		group.Go(func() {
			for p := range parts {
				ctx, cancel := context.WithCancel(ctx)
				msg := message.NewMessage("message", p)
				msg.SetContext(ctx)
				source.out <- msg
				<-msg.Acked()
				cancel()
			}
		})
	}
	for _, p := range payloads {
		parts <- p
	}
	close(parts)
	n, err := m.Wait(ctx, 0)
	took := time.Since(began)
	group.Wait()
	close(source.out)
	return Values{"rate": float64(n) / took.Seconds()}, errors.Join(err, stop())
}

// RunRouter runs a Watermill router with one handler until stop is called.
func RunRouter(ctx context.Context, s message.Subscriber, topic string, h message.NoPublishHandlerFunc) (stop func() error, err error) {
	r, err := message.NewRouter(message.RouterConfig{CloseTimeout: time.Minute}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	r.AddConsumerHandler("bench", topic, s, h)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	select {
	case <-r.Running():
	case err := <-ended:
		return nil, errors.Join(err, errors.New("the router did not start"))
	}
	return func() error { return errors.Join(r.Close(), <-ended) }, nil
}
