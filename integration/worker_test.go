package integration_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/internal/clock"
	"github.com/suisha-go/suisha/lease"
	"github.com/suisha-go/suisha/middleware"
	"github.com/suisha-go/suisha/shardpub"
)

// workerEnv holds the spec of a worker process.
const workerEnv = "SUISHA_TEST_WORKER"

// workerSpec says what a worker process does.
type workerSpec struct {
	Name        string
	DSN         string
	Group       string
	Category    string
	Shards      int
	Concurrency int
	Work        time.Duration // how long a handler takes
	TTL, Renew  time.Duration
	Drain       time.Duration
	Checkpoint  time.Duration
	Shift       time.Duration // how wrong the process's clock is
	Conns       int           // of the pool that handlers use
	Hold        time.Duration // handlers hold a connection of the pool for so long
	PollOnly    bool
	Retry       shardpub.RetryPolicy
	FailOnce    bool   // each event fails at its first delivery
	FailEvery   int64  // positions that this divides fail at their first delivery by a worker
	FailStream  string // its events always fail
	FailType    string
	IgnoreCtx   bool // handlers do not look at their context
	Batch       int
	BlockAt     string // stream@version: its handler waits for the end of its context
	PanicAt     string // stream@version: its handler panics at the first delivery
	SlowType    string
	Slow        time.Duration // how long a handler of that type takes
	Weight      int
	Margin      time.Duration
	MaxInFlight int
}

// What a worker process exits with, besides 0 and 1.
const (
	exitTarget = 4 // the subscription reads something else
	exitShards = 5 // it has another number of shards
)

// runWorker is the worker process. It ends on SIGTERM, or when the test that
// started it is gone.
func runWorker(spec string) int {
	var w workerSpec
	if err := json.Unmarshal([]byte(spec), &w); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() { // the parent holds the other end
		_, _ = bufio.NewReader(os.Stdin).ReadByte()
		os.Exit(3)
	}()
	if err := w.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, w.Name, err)
		return exitCode(err)
	}
	return 0
}

func exitCode(err error) int {
	var target *lease.TargetError
	var shards *lease.ShardCountError
	switch {
	case errors.As(err, &target):
		return exitTarget
	case errors.As(err, &shards):
		return exitShards
	}
	return 1
}

func (w workerSpec) run(ctx context.Context) error {
	clock.Shift(w.Shift)
	config, err := pgxpool.ParseConfig(w.DSN)
	if err != nil {
		return err
	}
	config.ConnConfig.RuntimeParams["application_name"] = w.Name
	if w.Conns > 0 {
		config.MaxConns = int32(w.Conns)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return err
	}
	defer pool.Close()
	node, err := shardpub.NewNode(pool, shardpub.NodeConfig{
		Lease:          lease.Config{TTL: w.TTL, RenewInterval: w.Renew, Margin: w.Margin, Weight: w.Weight},
		Name:           w.Name,
		PollInterval:   500 * time.Millisecond,
		DisableSession: w.PollOnly,
		OnError:        func(_ context.Context, err error) { fmt.Fprintf(os.Stderr, "%s %T %q\n", w.Name, err, err) },
	}, nil)
	if err != nil {
		return err
	}
	sub, err := shardpub.NewSubscriber(nil, shardpub.SubscriberConfig{
		ConsumerGroup:      w.Group,
		SubscriptionName:   shardpub.ExactName,
		Shards:             w.Shards,
		Concurrency:        w.Concurrency,
		BatchSize:          w.Batch,
		MaxInFlight:        w.MaxInFlight,
		DrainTimeout:       w.Drain,
		CheckpointInterval: w.Checkpoint,
		Retry:              w.Retry,
		Node:               node,
	}, nil)
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: time.Minute}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	router.AddMiddleware(middleware.Mark())
	h := &handler{spec: w, pool: pool, seen: map[string]bool{}}
	router.AddConsumerHandler(w.Group, w.Category, sub, h.handle)
	if err := router.Run(ctx); err != nil {
		return err
	}
	return errors.Join(sub.Close(), node.Close())
}

// handler writes each of its calls into a table that takes everything.
type handler struct {
	spec workerSpec
	pool *pgxpool.Pool
	mu   sync.Mutex
	seen map[string]bool
}

const insertCall = `insert into calls (worker, worker_id, bucket, stream, version, position, attempt, began_at)
values ($1, $2, $3, $4, $5, $6, $7, $8) returning id`

// endCall has the handler's own time: the statement comes later.
const endCall = `update calls set ended = $2, ended_at = $3 where id = $1`

var errFirst = errors.New("the first delivery fails")

func (h *handler) handle(msg *message.Message) error {
	d, ok := shardpub.DeliveryFromContext(msg.Context())
	if !ok {
		return errors.New("no delivery in the message's context")
	}
	ctx := context.WithoutCancel(msg.Context())
	var id int64
	err := h.pool.QueryRow(ctx, insertCall, h.spec.Name, d.Worker, d.Bucket, d.Stream, d.Version, d.Position, d.Attempt, time.Now()).Scan(&id)
	if err != nil {
		return err
	}
	if h.spec.FailOnce && h.first(d) {
		return errFirst
	}
	if h.spec.BlockAt == fmt.Sprint(d.Stream, "@", d.Version) {
		<-msg.Context().Done()
		return msg.Context().Err()
	}
	if h.spec.PanicAt == fmt.Sprint(d.Stream, "@", d.Version) && h.first(d) {
		panic("the first delivery")
	}
	if err := h.work(msg.Context(), d); err != nil {
		if ended := time.Now(); errors.Is(context.Cause(msg.Context()), lease.ErrLost) {
			_, _ = h.pool.Exec(ctx, endCall, id, "lost", ended)
		}
		return err
	}
	ended := time.Now()
	if h.spec.FailType != "" && d.EventType == h.spec.FailType {
		return errors.New("this type always fails")
	}
	if h.spec.FailStream == d.Stream || h.spec.FailEvery > 0 && d.Position%h.spec.FailEvery == 0 && d.Attempt == 0 {
		return errFirst
	}
	_, err = h.pool.Exec(ctx, endCall, id, "done", ended)
	return err
}

func (h *handler) first(d shardpub.Delivery) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := fmt.Sprint(d.Stream, "@", d.Version)
	first := !h.seen[key]
	h.seen[key] = true
	return first
}

// work takes as long as the spec says, holding a connection if it says so.
func (h *handler) work(ctx context.Context, d shardpub.Delivery) error {
	if h.spec.Hold > 0 {
		_, err := h.pool.Exec(context.WithoutCancel(ctx), `select pg_sleep($1)`, h.spec.Hold.Seconds())
		return err
	}
	if h.spec.IgnoreCtx {
		ctx = context.WithoutCancel(ctx)
	}
	takes := h.spec.Work
	if h.spec.SlowType != "" && d.EventType == h.spec.SlowType {
		takes = h.spec.Slow
	}
	t := time.NewTimer(takes)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
