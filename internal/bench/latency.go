package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/suisha-go/suisha/router"
	"github.com/suisha-go/suisha/shardpub"
)

// How latency is measured: one event every interval, of which the first few warm
// up.
const (
	latencyEvery  = 20 * time.Millisecond
	latencyFirst  = 10
	latencyEvents = 310
	latencyGrace  = 10 * time.Second
)

// Stopwatch measures the time from before an event is written until its handler
// is called, event by event.
type Stopwatch struct {
	sent, came [latencyEvents]atomic.Int64
	left       atomic.Int64
	done       chan struct{}
	bad        atomic.Bool
}

// NewStopwatch makes one.
func NewStopwatch() *Stopwatch {
	s := &Stopwatch{done: make(chan struct{})}
	s.left.Store(latencyEvents)
	return s
}

// Handled takes the number of an event that its handler has.
func (s *Stopwatch) Handled(n int) {
	if n < 0 || n >= latencyEvents || !s.came[n].CompareAndSwap(0, time.Now().UnixNano()) {
		s.bad.Store(true)
		return
	}
	if s.left.Add(-1) == 0 {
		close(s.done)
	}
}

// Handler is Handled for a Watermill router.
func (s *Stopwatch) Handler(msg *message.Message) error {
	n, err := number(msg.Payload)
	if err != nil {
		return err
	}
	s.Handled(n)
	return nil
}

// Measure writes events at a steady rate and waits for all of them.
func (s *Stopwatch) Measure(ctx context.Context, write func(n int) error) (Values, error) {
	tick := time.NewTicker(latencyEvery)
	defer tick.Stop()
	for n := range latencyEvents {
		<-tick.C
		s.sent[n].Store(time.Now().UnixNano())
		if err := write(n); err != nil {
			return nil, err
		}
	}
	grace := time.NewTimer(latencyGrace)
	defer grace.Stop()
	select {
	case <-s.done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-grace.C:
		return nil, fmt.Errorf("%d of %d events are missing", s.left.Load(), latencyEvents)
	}
	if s.bad.Load() {
		return nil, errors.New("an event came twice")
	}
	var all []float64
	for n := latencyFirst; n < latencyEvents; n++ {
		all = append(all, float64(s.came[n].Load()-s.sent[n].Load())/float64(time.Millisecond))
	}
	return Values{"p50": quantile(all, 0.5), "p90": quantile(all, 0.9), "p99": quantile(all, 0.99), "max": quantile(all, 1)}, nil
}

// Publishing writes with a Watermill publisher.
func Publishing(p message.Publisher) func(n int) error {
	return func(n int) error { return p.Publish(Orders, message.NewMessage(watermill.NewUUID(), Payload(n))) }
}

func latency(ctx context.Context, e *Env) (Values, error) {
	db, err := e.Server.Loaded(ctx, Load{})
	if err != nil {
		return nil, err
	}
	defer db.Close()
	var bad troubles
	worker, err := router.New(db.Pool, router.Config{Shards: usualBuckets, Node: shardpub.NodeConfig{OnError: bad.note}}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	watch := NewStopwatch()
	worker.AddConsumerHandler("latency", Orders, watch.Handler)
	if err := worker.Start(ctx); err != nil {
		return nil, err
	}
	p, err := shardpub.NewPublisher(db.Pool, shardpub.PublisherConfig{
		Key: func(_ string, m *message.Message) (string, error) { return m.UUID[:2], nil },
	}, watermill.NopLogger{})
	if err != nil {
		return nil, errors.Join(err, worker.Stop(context.WithoutCancel(ctx)))
	}
	values, err := watch.Measure(ctx, Publishing(p))
	return values, errors.Join(err, bad.err(), worker.Stop(context.WithoutCancel(ctx)), p.Close())
}

func latencyQuestion() Question {
	return Question{
		ID: Latency, Title: "From append to handler, at 50 events/s", Primary: "p50", Unit: "ms", Low: true,
		Cases: []Case{{Name: Ours, Options: "Shards 16", Run: latency}},
		Goals: []Goal{
			{Text: "suisha, p50", Figure: Value(Ours, "p50"), Target: 5, Most: true, Unit: "ms"},
			{Text: "suisha, p99", Figure: Value(Ours, "p99"), Target: 15, Most: true, Unit: "ms"},
		},
	}
}
