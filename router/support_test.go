package router_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/internal/pgtest"
	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/lease"
	"github.com/suisha-go/suisha/router"
	"github.com/suisha-go/suisha/shardpub"
)

// patience is how long a test waits for what must happen.
const patience = 90 * time.Second

var errBoom = errors.New("boom")

func database(tb testing.TB) *pgxpool.Pool {
	tb.Helper()
	return pgtest.New(tb, shardpub.Migrate)
}

// quick is a config in which nothing takes long.
func quick(shards int) router.Config {
	return router.Config{
		Shards:       shards,
		Retry:        shardpub.RetryPolicy{MaxDeliveries: 3, Delay: 5 * time.Millisecond},
		DrainTimeout: 5 * time.Second,
		Node: shardpub.NodeConfig{
			Lease:        lease.Config{TTL: 6 * time.Second, RenewInterval: 2 * time.Second},
			PollInterval: time.Second,
		},
	}
}

func newWorker(tb testing.TB, pool *pgxpool.Pool, cfg router.Config) *router.Worker {
	tb.Helper()
	w, err := router.New(pool, cfg, watermill.NopLogger{})
	if err != nil {
		tb.Fatal(err)
	}
	return w
}

// start starts a Worker and stops it with the test.
func start(tb testing.TB, w *router.Worker) {
	tb.Helper()
	tb.Cleanup(func() { stop(tb, w) })
	if err := w.Start(tb.Context()); err != nil {
		tb.Fatalf("start: %v", err)
	}
}

func stop(tb testing.TB, w *router.Worker) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), patience)
	defer cancel()
	if err := w.Stop(ctx); err != nil {
		tb.Errorf("stop: %v", err)
	}
}

// add appends n events to a stream and returns the position of the last.
func add(tb testing.TB, db kiroku.DB, stream string, n int) kiroku.Position {
	tb.Helper()
	events := make([]kiroku.Event, n)
	for i := range events {
		events[i] = kiroku.Event{Type: "Counted", Data: fmt.Appendf(nil, `{"n": %d}`, i+1)}
	}
	out, err := kiroku.Append(tb.Context(), db, kiroku.StreamAppend{Stream: stream, Events: events})
	if err != nil {
		tb.Fatalf("append to %q: %v", stream, err)
	}
	return out[0].Position
}

// addRounds appends an event to each of so many streams of orders, and again.
func addRounds(tb testing.TB, db kiroku.DB, rounds, streams int) {
	tb.Helper()
	for range rounds {
		for n := range streams {
			add(tb, db, stream("orders", n), 1)
		}
	}
}

func exec(tb testing.TB, db kiroku.DB, sql string, args ...any) {
	tb.Helper()
	if _, err := db.Exec(tb.Context(), sql, args...); err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
}

// deadLetters are those of a subscription, newest first.
func deadLetters(tb testing.TB, db kiroku.DB, subscription string) []kiroku.DeadLetter {
	tb.Helper()
	letters, _, err := kiroku.ListDeadLetters(tb.Context(), db, kiroku.DeadLetterFilter{Subscription: subscription})
	if err != nil {
		tb.Fatal(err)
	}
	return letters
}

// waitFor waits until everything up to p is settled.
func waitFor(tb testing.TB, w *router.Worker, subscription string, p kiroku.Position) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	if err := w.WaitFor(ctx, subscription, p); err != nil {
		tb.Fatalf("%v; health: %v", err, w.Health(tb.Context()).Problems)
	}
}

// eventually polls until ok.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			tb.Fatalf("not within %s: %s", patience, what)
		}
	}
}

func receive[T any](tb testing.TB, what string, c <-chan T) T {
	tb.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		tb.Fatalf("not within %s: %s", patience, what)
		panic("unreachable")
	}
}

// diary is what handlers saw.
type diary struct {
	mu   sync.Mutex
	seen []shardpub.Delivery
}

func (d *diary) note(msg *message.Message) shardpub.Delivery {
	delivery, _ := shardpub.DeliveryFromContext(msg.Context())
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen = append(d.seen, delivery)
	return delivery
}

func (d *diary) all() []shardpub.Delivery {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]shardpub.Delivery(nil), d.seen...)
}

func (d *diary) len() int { return len(d.all()) }

// versions are those of each stream, in order.
func (d *diary) versions() map[string][]int64 {
	of := map[string][]int64{}
	for _, delivery := range d.all() {
		of[delivery.Stream] = append(of[delivery.Stream], delivery.Version)
	}
	return of
}

func stream(category string, n int) string { return fmt.Sprintf("%s-%d", category, n) }

// unreachable is a pool on a port where nobody listens.
func unreachable(tb testing.TB) *pgxpool.Pool {
	tb.Helper()
	pool, err := pgxpool.New(tb.Context(), "postgres://127.0.0.1:1/none?connect_timeout=2")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

// errorLog is a logger that keeps the errors.
type errorLog struct {
	watermill.NopLogger
	mu   sync.Mutex
	errs []error
}

func (l *errorLog) Error(_ string, err error, _ watermill.LogFields) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errs = append(l.errs, err)
}

func (l *errorLog) With(watermill.LogFields) watermill.LoggerAdapter { return l }

func (l *errorLog) all() []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]error(nil), l.errs...)
}

func (l *errorLog) has(want error) bool {
	for _, err := range l.all() {
		if errors.Is(err, want) {
			return true
		}
	}
	return false
}
