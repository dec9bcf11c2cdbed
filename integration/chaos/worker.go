//go:build unix

package main

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/internal/clock"
	"github.com/suisha-go/suisha/lease"
	"github.com/suisha-go/suisha/router"
	"github.com/suisha-go/suisha/shardpub"
)

//go:embed sql/call.sql
var callSQL string

// workerEnv holds the spec of a worker process.
const workerEnv = "SUISHA_CHAOS_WORKER"

// What is read, and under which name.
const (
	category     = "chaos"
	subscription = "chaos"
)

// workerSpec says what a worker process does.
type workerSpec struct {
	Name        string
	DSN         string
	Buckets     int
	Concurrency int
	Batch       int // more than one: a stream's messages are handled together
	Work        time.Duration
	TTL, Renew  time.Duration
	Weight      int
	Tries       int           // deliveries at most; 0 is the default
	Poll        time.Duration // 0 is the default
	Shift       time.Duration // how wrong its clock is
	Sessionless bool
}

// What a worker process exits with.
const (
	exitOK      = 0
	exitFailed  = 1
	exitBadSpec = 2
	exitOrphan  = 3
	exitStart   = 4 // it never started
)

// handlersSuffix tells the connections of handlers from the worker's.
const handlersSuffix = "-handlers"

// noteWithin is how long a handler tries to write its row.
const noteWithin = 2 * time.Second

// runWorker is the worker process. It ends on SIGTERM, or when its parent is gone.
func runWorker(text string) int {
	var w workerSpec
	if err := json.Unmarshal([]byte(text), &w); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitBadSpec
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() { // the parent holds the other end
		_, _ = bufio.NewReader(os.Stdin).ReadByte()
		os.Exit(exitOrphan)
	}()
	code, err := w.run(ctx)
	if err != nil {
		w.say("ends with %T: %v", err, err)
	}
	return code
}

func (w workerSpec) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s %s %s\n", time.Now().Format("15:04:05.000"), w.Name, fmt.Sprintf(format, args...))
}

func (w workerSpec) run(ctx context.Context) (int, error) {
	clock.Shift(w.Shift)
	config, err := pgxpool.ParseConfig(w.DSN)
	if err != nil {
		return exitBadSpec, err
	}
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), config)
	if err != nil {
		return exitBadSpec, err
	}
	defer pool.Close()
	notes, err := w.openNotes(ctx)
	if err != nil {
		return exitBadSpec, err
	}
	defer notes.Close()
	worker, err := router.New(pool, router.Config{
		Shards:       w.Buckets,
		Concurrency:  w.Concurrency,
		DrainTimeout: 5 * time.Second,
		Retry:        w.retry(),
		Node: shardpub.NodeConfig{
			Lease:          lease.Config{TTL: w.TTL, RenewInterval: w.Renew, Weight: w.Weight},
			Name:           w.Name,
			PollInterval:   w.Poll,
			DisableSession: w.Sessionless,
			OnError:        func(_ context.Context, err error) { w.say("%T: %v", err, err) },
		},
	}, nil)
	if err != nil {
		return exitBadSpec, err
	}
	if w.Batch > 1 {
		worker.AddStreamBatchHandler(subscription, category, w.Batch, func(_ context.Context, msgs []*message.Message) error {
			return w.handleAll(msgs, notes)
		})
	} else {
		worker.AddConsumerHandler(subscription, category, func(msg *message.Message) error { return w.handle(msg, notes) })
	}
	if err := worker.Start(ctx); err != nil && ctx.Err() == nil {
		return exitStart, err
	}
	if err := worker.Run(ctx); err != nil {
		return exitFailed, err
	}
	return exitOK, nil
}

// retry is the default policy, or one of so many deliveries that soon come again.
func (w workerSpec) retry() shardpub.RetryPolicy {
	if w.Tries == 0 {
		return shardpub.RetryPolicy{}
	}
	return shardpub.RetryPolicy{MaxDeliveries: w.Tries, Delay: 200 * time.Millisecond}
}

// openNotes opens what handlers write their rows with, as a program does that has a
// database of its own: before it joins anything.
func (w workerSpec) openNotes(ctx context.Context) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(w.DSN)
	if err != nil {
		return nil, err
	}
	config.MaxConns, config.MinConns = 2, 2
	config.ConnConfig.RuntimeParams["application_name"] = w.Name + handlersSuffix
	notes, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), config)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, noteWithin)
		defer cancel()
		_ = notes.Ping(ctx) // a server that is away is the worker's to report
	}
	return notes, err
}

// handleAll handles messages one after the other, and none behind one that failed.
func (w workerSpec) handleAll(msgs []*message.Message, notes *pgxpool.Pool) error {
	each := make(router.BatchErrors, len(msgs))
	for i, msg := range msgs {
		if each[i] = w.handle(msg, notes); each[i] != nil {
			for rest := i + 1; rest < len(msgs); rest++ {
				each[rest] = errNotTried
			}
			return each
		}
	}
	return nil
}

// errNotTried is what becomes of a message behind one that failed.
var errNotTried = errors.New("one before it in its stream failed")

// handle takes its time and notes the call at its end.
func (w workerSpec) handle(msg *message.Message, notes *pgxpool.Pool) error {
	began := time.Now()
	d, ok := shardpub.DeliveryFromContext(msg.Context())
	if !ok {
		return errors.New("no delivery in the message's context")
	}
	timer := time.NewTimer(w.Work/2 + rand.N(w.Work+1))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-msg.Context().Done():
		return context.Cause(msg.Context())
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(msg.Context()), noteWithin)
	defer cancel()
	_, err := notes.Exec(ctx, callSQL, w.Name, d.Worker, d.Bucket, d.Stream, d.Version, d.Position, d.Attempt, began)
	return err
}
