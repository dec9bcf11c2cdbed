package router_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/suisha-go/suisha/lease"
	"github.com/suisha-go/suisha/router"
	"github.com/suisha-go/suisha/shardpub"
)

func accept(*message.Message) error { return nil }

func TestRunReturnsNilWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	pool := database(t)
	add(t, pool, "orders-1", 1)
	w := newWorker(t, pool, quick(2))
	handled := make(chan struct{}, 1)
	w.AddConsumerHandler("billing", "orders", func(*message.Message) error {
		handled <- struct{}{}
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- w.Run(ctx) }()
	receive(t, "the event", handled)
	cancel()
	if err := receive(t, "the end of Run", ran); err != nil {
		t.Errorf("Run: %v", err)
	}
	receive(t, "Done", w.Done())
	if err := w.Err(); err != nil {
		t.Errorf("Err: %v", err)
	}
	if err := w.Run(t.Context()); !errors.Is(err, router.ErrStopped) {
		t.Errorf("a second Run: %v", err)
	}
	if err := w.Start(t.Context()); !errors.Is(err, router.ErrStopped) {
		t.Errorf("a later Start: %v", err)
	}
	if _, err := w.Subscriber("late"); !errors.Is(err, router.ErrStopped) {
		t.Errorf("a later Subscriber: %v", err)
	}
}

func TestRunWithAContextThatIsOverEndsAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorker(t, unreachable(t), quick(2))
	w.AddConsumerHandler("billing", "orders", accept)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Run(ctx); err != nil {
		t.Errorf("Run: %v", err)
	}
	receive(t, "Done", w.Done())
}

func TestStartAndStopAreIdempotentAndSafeTogether(t *testing.T) {
	t.Parallel()
	pool := database(t)
	w := newWorker(t, pool, quick(4))
	w.AddConsumerHandler("billing", "orders", accept)
	together := func(what string, f func(context.Context) error, allowed ...error) {
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() {
				err := f(t.Context())
				for _, ok := range allowed {
					if errors.Is(err, ok) {
						return
					}
				}
				if err != nil {
					t.Errorf("%s: %v", what, err)
				}
			})
		}
		all.Wait()
	}
	together("Start", w.Start)
	together("Stop", w.Stop)
	together("Stop again", w.Stop)
	receive(t, "Done", w.Done())

	w = newWorker(t, pool, quick(4))
	w.AddConsumerHandler("billing", "orders", accept)
	var all sync.WaitGroup
	all.Go(func() { together("Start beside Stop", w.Start, router.ErrStopped) })
	all.Go(func() { together("Stop beside Start", w.Stop) })
	all.Go(func() { together("Health", func(ctx context.Context) error { w.Health(ctx); return nil }) })
	all.Wait()
	receive(t, "Done", w.Done())
}

// Public case 697: a Watermill router that never ran blocks in Close.
func TestStopOfAWorkerThatNeverStartedIsNilAndQuick(t *testing.T) {
	t.Parallel()
	w := newWorker(t, unreachable(t), quick(2))
	w.AddConsumerHandler("billing", "orders", accept)
	began := time.Now()
	for range 2 {
		if err := w.Stop(t.Context()); err != nil {
			t.Errorf("Stop: %v", err)
		}
	}
	receive(t, "Done", w.Done())
	if took := time.Since(began); took > time.Second {
		t.Errorf("took %s", took)
	}
	if err := w.Start(t.Context()); !errors.Is(err, router.ErrStopped) {
		t.Errorf("Start after Stop: %v", err)
	}
}

func TestStartTellsThatTheServerIsUnreachable(t *testing.T) {
	t.Parallel()
	w := newWorker(t, unreachable(t), quick(2))
	for _, name := range []string{"billing", "shipping"} {
		_, err := w.Add(router.Handler{
			Name: name, Category: "orders", Consume: accept,
			Options: shardpub.SubscriberConfig{StartTimeout: 200 * time.Millisecond},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	err := w.Start(t.Context())
	var handler *router.HandlerError
	var connect *shardpub.ConnectError
	if !errors.As(err, &handler) || !errors.As(err, &connect) || connect.Subscription != handler.Handler {
		t.Errorf("Start: %v", err)
	}
	if again := w.Start(t.Context()); again == nil || again.Error() != err.Error() {
		t.Errorf("Start again: %v", again)
	}
	receive(t, "Done", w.Done())
	if err := w.Err(); !errors.As(err, &connect) {
		t.Errorf("Err: %v", err)
	}
	if err := w.Stop(t.Context()); err != nil {
		t.Errorf("Stop: %v", err)
	}
	if h := w.Health(t.Context()); h.Healthy || h.Problems[0].Kind != router.NotRunning || h.Problems[0].Err == nil {
		t.Errorf("health: %+v", h)
	}
}

func TestStartEndsWithItsContext(t *testing.T) {
	t.Parallel()
	w := newWorker(t, unreachable(t), quick(2))
	w.AddConsumerHandler("billing", "orders", accept)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := w.Start(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Start: %v", err)
	}
	receive(t, "Done", w.Done())
}

func TestNothingIsClaimedIfOneSubscriptionFails(t *testing.T) {
	t.Parallel()
	pool := database(t)
	first := newWorker(t, pool, quick(4))
	first.AddConsumerHandler("shipping", "orders", accept)
	start(t, first)
	stop(t, first)

	w := newWorker(t, pool, quick(8))
	w.AddConsumerHandler("billing", "orders", accept)
	w.AddConsumerHandler("shipping", "orders", accept)
	w.AddConsumerHandler("broken", "or-ders", accept)
	err := w.Start(t.Context())
	var count *lease.ShardCountError
	var topic *shardpub.TopicError
	if !errors.As(err, &count) || count.Subscription != "shipping" || !errors.As(err, &topic) {
		t.Errorf("Start: %v", err)
	}
	receive(t, "Done", w.Done())
	var claimed int
	if err := pool.QueryRow(t.Context(), "select count(owner_worker_id) from keiro.keiro_subscription_shards").Scan(&claimed); err != nil {
		t.Fatal(err)
	}
	if claimed != 0 {
		t.Errorf("%d buckets claimed", claimed)
	}
}

func TestHandlersAreAddedBeforeStartOnly(t *testing.T) {
	t.Parallel()
	pool := database(t)
	w := newWorker(t, pool, quick(2))
	w.AddConsumerHandler("billing", "orders", accept)
	start(t, w)
	if _, err := w.Add(router.Handler{Name: "late", Category: "orders", Consume: accept}); !errors.Is(err, router.ErrStarted) {
		t.Errorf("Add: %v", err)
	}
	for name, f := range map[string]func(){
		"AddConsumerHandler": func() { w.AddConsumerHandler("late", "orders", accept) },
		"AddBatchHandler":    func() { w.AddBatchHandler("late", "orders", 0, nil) },
		"AddMiddleware":      func() { w.AddMiddleware(refusing) },
	} {
		func() {
			defer func() {
				if err, _ := recover().(error); !errors.Is(err, router.ErrStarted) {
					t.Errorf("%s panicked with %v", name, err)
				}
			}()
			f()
		}()
	}
}

func TestARouterThatClosesByItselfIsAnError(t *testing.T) {
	t.Parallel()
	pool := database(t)
	for name, end := range map[string]func(*router.Worker, *message.Handler) error{
		"closed":           func(w *router.Worker, _ *message.Handler) error { return w.Router().Close() },
		"handlers stopped": func(_ *router.Worker, h *message.Handler) error { h.Stop(); return nil },
	} {
		w := newWorker(t, pool, quick(2))
		h := w.AddConsumerHandler("billing", "orders", accept)
		ran := make(chan error, 1)
		go func() { ran <- w.Run(t.Context()) }()
		receive(t, "the start of the handler", h.Started())
		eventually(t, "health", func() bool { return w.Health(t.Context()).Healthy })
		if err := end(w, h); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := receive(t, "the end of Run", ran); !errors.Is(err, router.ErrRouterClosed) {
			t.Errorf("%s: Run: %v", name, err)
		}
		receive(t, "Done", w.Done())
		if err := w.Err(); !errors.Is(err, router.ErrRouterClosed) {
			t.Errorf("%s: Err: %v", name, err)
		}
	}
}
