package bench

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/router"
	"github.com/suisha-go/suisha/shardpub"
)

//go:embed sql/reached.sql
var reachedSQL string

// Ours is the main case of ours.
const Ours = "suisha"

// steady is the rate from the first event on: without what a start takes.
const steady = "rate once it runs"

// drain is a drain of ours.
type drain struct {
	load        Load
	category    string
	buckets     int
	concurrency int           // 0: the default
	inFlight    int           // handlers of all buckets at once; 0: the default
	work        time.Duration // of each handler
	stop        int           // events that are enough; 0: all
}

// subscriptions numbers those that share a database.
var subscriptions atomic.Int64

// handler notes a message after so much work.
func handler(m *Meter, work time.Duration) message.NoPublishHandlerFunc {
	return func(msg *message.Message) error {
		if work > 0 {
			time.Sleep(work)
		}
		m.Note(msg.Payload)
		return nil
	}
}

// troubles keeps the first error that a worker reports.
type troubles struct{ first atomic.Pointer[error] }

func (t *troubles) note(_ context.Context, err error) { t.first.CompareAndSwap(nil, &err) }

func (t *troubles) err() error {
	if err := t.first.Load(); err != nil {
		return fmt.Errorf("reported: %w", *err)
	}
	return nil
}

func (d drain) run(ctx context.Context, e *Env) (Values, error) {
	db, err := e.Server.Loaded(ctx, d.load)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	return d.on(ctx, db)
}

// on drains a category of a database that is loaded.
func (d drain) on(ctx context.Context, db *DB) (Values, error) {
	events, streams := d.load.Of(d.category)
	meter := NewMeter(events, streams, true, d.stop)
	var bad troubles
	worker, err := router.New(db.Pool, router.Config{
		Shards:      d.buckets,
		Concurrency: d.concurrency,
		Node:        shardpub.NodeConfig{OnError: bad.note},
	}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	subscription := fmt.Sprintf("drain-%d", subscriptions.Add(1))
	_, err = worker.Add(router.Handler{
		Name: subscription, Category: d.category, Consume: handler(meter, d.work), Options: shardpub.SubscriberConfig{MaxInFlight: d.inFlight},
	})
	if err != nil {
		return nil, err
	}

	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	began := time.Now()
	if err := worker.Start(ctx); err != nil {
		return nil, err
	}
	n, err := meter.Wait(ctx, 0)
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	err = errors.Join(err, bad.err(), worker.Stop(context.WithoutCancel(ctx)), meter.Err())
	if err != nil {
		return nil, err
	}
	if d.stop == 0 {
		err = d.complete(ctx, db.Pool, meter, subscription)
	}
	return Values{
		"rate":         float64(n) / took.Seconds(),
		steady:         float64(n) / (took - meter.first.Load().Sub(began)).Seconds(),
		"allocs/event": float64(after.Mallocs-before.Mallocs) / float64(n),
		"bytes/event":  float64(after.TotalAlloc-before.TotalAlloc) / float64(n),
	}, err
}

// complete checks that no event was missed or handed out twice, also during the
// stop, and that the checkpoints say so.
func (d drain) complete(ctx context.Context, pool *pgxpool.Pool, m *Meter, subscription string) error {
	if events, _ := d.load.Of(d.category); m.Count() != int64(events) {
		return fmt.Errorf("%d of %d events were handled", m.Count(), events)
	}
	var left int64
	if err := pool.QueryRow(ctx, reachedSQL, subscription, d.category, d.buckets).Scan(&left); err != nil {
		return err
	}
	if left > 0 {
		return fmt.Errorf("%d streams end above the checkpoints of their buckets", left)
	}
	return nil
}
