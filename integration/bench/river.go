//go:build peers

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	riverqueue "github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/suisha-go/suisha/internal/bench"
)

// job is one event; Pad makes it as large as the others' payloads.
type job struct {
	N   int    `json:"n"`
	Pad string `json:"pad"`
}

// Kind implements river.JobArgs.
func (job) Kind() string { return "bench" }

const padSize = bench.PayloadSize - len(`{"n":12345,"pad":""}`)

var pad = fmt.Sprintf("%0*d", padSize, 0)

// handler works jobs.
type handler struct {
	riverqueue.WorkerDefaults[job]
	work func(job)
}

// Work implements river.Worker.
func (h *handler) Work(_ context.Context, j *riverqueue.Job[job]) error {
	h.work(j.Args)
	return nil
}

// catcher is a slog.Handler that keeps the first error.
type catcher struct{ first atomic.Pointer[error] }

func (*catcher) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelError }
func (c *catcher) WithAttrs([]slog.Attr) slog.Handler         { return c }
func (c *catcher) WithGroup(string) slog.Handler              { return c }

// Handle implements slog.Handler.
func (c *catcher) Handle(_ context.Context, r slog.Record) error {
	err := errors.New("logged: " + r.Message)
	r.Attrs(func(a slog.Attr) bool {
		err = fmt.Errorf("%w %s", err, a)
		return true
	})
	c.first.CompareAndSwap(nil, &err)
	return nil
}

func (c *catcher) err() error {
	if err := c.first.Load(); err != nil {
		return *err
	}
	return nil
}

// riverOptions are how a client is made.
type riverOptions struct {
	workers        int
	cooldown, poll time.Duration // 0: the default
}

var (
	riverDefault = riverOptions{workers: 100}
	riverBench   = riverOptions{workers: 2000, cooldown: 2 * time.Millisecond, poll: 20 * time.Millisecond}
	riverSlow    = riverOptions{workers: 64, cooldown: 2 * time.Millisecond, poll: 20 * time.Millisecond}
)

func (o riverOptions) String() string {
	if o.cooldown == 0 {
		return fmt.Sprintf("MaxWorkers %d", o.workers)
	}
	return fmt.Sprintf("MaxWorkers %d, FetchCooldown %s, FetchPollInterval %s", o.workers, o.cooldown, o.poll)
}

func (o riverOptions) client(pool *pgxpool.Pool, c *catcher, work func(job)) (*riverqueue.Client[pgx.Tx], error) {
	workers := riverqueue.NewWorkers()
	riverqueue.AddWorker(workers, &handler{work: work})
	return riverqueue.NewClient(riverpgxv5.New(pool), &riverqueue.Config{
		FetchCooldown:     o.cooldown,
		FetchPollInterval: o.poll,
		Logger:            slog.New(c),
		Queues:            map[string]riverqueue.QueueConfig{riverqueue.QueueDefault: {MaxWorkers: o.workers}},
		Workers:           workers,
	})
}

// riverDatabase makes one with its tables and jobs.
func riverDatabase(ctx context.Context, e *bench.Env, jobs int) (*bench.DB, error) {
	return e.Server.Prepared(ctx, river+bench.Span(0, jobs), func(ctx context.Context, d *bench.DB) error {
		m, err := rivermigrate.New(riverpgxv5.New(d.Pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil || jobs == 0 {
			return err
		}
		client, err := riverDefault.client(d.Pool, &catcher{}, func(job) {})
		if err != nil {
			return err
		}
		const batch = 5000
		for at := 0; at < jobs; at += batch {
			var all []riverqueue.InsertManyParams
			for n := at; n < min(at+batch, jobs); n++ {
				all = append(all, riverqueue.InsertManyParams{Args: job{N: n, Pad: pad}})
			}
			if _, err := client.InsertManyFast(ctx, all); err != nil {
				return err
			}
		}
		return nil
	})
}

// drain measures a client from its start to the last job. River promises no
// order.
func (o riverOptions) drain(b bench.Backlog) func(context.Context, *bench.Env) (bench.Values, error) {
	return func(ctx context.Context, e *bench.Env) (bench.Values, error) {
		db, err := riverDatabase(ctx, e, b.Events)
		if err != nil {
			return nil, err
		}
		defer db.Close()
		m, logged := b.Meter(), &catcher{}
		client, err := o.client(db.Pool, logged, func(j job) {
			if b.Work > 0 {
				time.Sleep(b.Work)
			}
			m.NoteNumber(j.N)
		})
		if err != nil {
			return nil, err
		}
		began := time.Now()
		if err := client.Start(ctx); err != nil {
			return nil, err
		}
		n, err := m.Wait(ctx, b.Within)
		took := time.Since(began)
		return b.Values(n, took), errors.Join(err, m.Err(), logged.err(), client.Stop(context.WithoutCancel(ctx)))
	}
}

func riverDrains(events int) []bench.Case {
	return []bench.Case{
		{
			Name: river + ", default", Peer: river, Options: riverDefault.String(), Once: true, Note: "5,000 jobs; it fetches at most 100 per 100 ms",
			Run: riverDefault.drain(bench.Backlog{Events: min(events, 5000)}),
		},
		{
			Name: river + ", its bench", Peer: river, Options: riverBench.String(), Once: true, Note: "30,000 jobs; the options of its own benchmark",
			Run: riverBench.drain(bench.Backlog{Events: min(events, 30_000)}),
		},
	}
}
