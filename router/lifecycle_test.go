package router_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/suisha-go/suisha/kiroku"
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

func TestAHungHandlerIsNamedAndTheOthersGoOn(t *testing.T) {
	t.Parallel()
	pool := database(t)
	cfg := quick(1)
	cfg.DrainTimeout = 100 * time.Millisecond
	w := newWorker(t, pool, cfg)
	release := make(chan struct{})
	left := make(chan struct{})
	hung := make(chan struct{})
	w.AddConsumerHandler("hung", "orders", func(*message.Message) error {
		defer close(left)
		close(hung)
		<-release // whatever its context says
		return nil
	})
	w.AddConsumerHandler("billing", "orders", accept)
	last := add(t, pool, "orders-1", 1)
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { <-left }()
	defer close(release)
	receive(t, "the handler that hangs", hung)
	waitFor(t, w, "billing", last)

	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := w.Stop(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a bounded Stop: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := w.Stop(ctx)
	var drain *shardpub.DrainError
	if !errors.As(err, &drain) {
		t.Fatalf("Stop: %v", err)
	}
	if drain.Subscription != "hung" || drain.Stream != "orders-1" || drain.Position != last {
		t.Errorf("drain error: %+v", drain)
	}
	checkpoints, err := kiroku.LoadCheckpoints(ctx, pool, "hung")
	if err != nil || checkpoints[0] >= last {
		t.Errorf("checkpoint %v, error %v", checkpoints, err)
	}
	var owned []string
	rows, _ := pool.Query(ctx, "select subscription_name from keiro.keiro_subscription_shards where owner_worker_id is not null")
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		owned = append(owned, name)
	}
	if len(owned) != 1 || owned[0] != "hung" {
		t.Errorf("still owned: %v, want only the hung one", owned)
	}
}

// One handler may drain for longer than the Worker's default.
func TestTheLongestDrainTimeoutBoundsTheEnd(t *testing.T) {
	t.Parallel()
	pool := database(t)
	cfg := quick(1)
	cfg.DrainTimeout = time.Millisecond
	w := newWorker(t, pool, cfg)
	entered := make(chan struct{})
	_, err := w.Add(router.Handler{
		Name: "slow", Category: "orders",
		Options: shardpub.SubscriberConfig{DrainTimeout: 20 * time.Second},
		Consume: func(msg *message.Message) error {
			close(entered)
			select {
			case <-time.After(500 * time.Millisecond):
			case <-msg.Context().Done():
				t.Error("cancelled while it drained")
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	last := add(t, pool, "orders-1", 1)
	start(t, w)
	receive(t, "the handler", entered)
	stop(t, w)
	checkpoints, err := kiroku.LoadCheckpoints(t.Context(), pool, "slow")
	if err != nil || checkpoints[0] < last {
		t.Errorf("checkpoint %v, want %d; error %v", checkpoints, last, err)
	}
}

func TestNewReportsEveryWrongOption(t *testing.T) {
	t.Parallel()
	_, err := router.New(nil, router.Config{
		Concurrency: -1, DrainTimeout: -1, HandlerTimeout: -2, StuckAfter: -1,
		Retry: shardpub.RetryPolicy{MaxDeliveries: -2},
		Node:  shardpub.NodeConfig{PollInterval: -1, Lease: lease.Config{TTL: time.Second, RenewInterval: time.Second}},
	}, watermill.NopLogger{})
	fields := configFields(err)
	for _, want := range []string{
		"pool", "Config.Shards", "Config.Concurrency", "Config.DrainTimeout", "Config.HandlerTimeout", "Config.StuckAfter",
		"Config.Retry.MaxDeliveries", "NodeConfig.PollInterval",
	} {
		if !fields[want] {
			t.Errorf("%s is not reported in: %v", want, err)
		}
	}
	var bad *lease.ConfigError
	if !errors.As(err, &bad) || bad.Field != "TTL" {
		t.Errorf("the lease's error is missing in: %v", err)
	}
}

// configFields are the fields of all the *shardpub.ConfigErrors in a tree.
func configFields(err error) map[string]bool {
	fields := map[string]bool{}
	var walk func(error)
	walk = func(err error) {
		switch e := err.(type) { //nolint:errorlint // it walks the tree itself
		case nil:
		case *shardpub.ConfigError:
			fields[e.Field] = true
		case interface{ Unwrap() []error }:
			for _, err := range e.Unwrap() {
				walk(err)
			}
		case interface{ Unwrap() error }:
			walk(e.Unwrap())
		}
	}
	walk(err)
	return fields
}

func TestWrongHandlersAreReportedTogetherByStart(t *testing.T) {
	t.Parallel()
	w := newWorker(t, unreachable(t), quick(2))
	w.AddConsumerHandler("billing", "orders", accept)
	w.AddConsumerHandler("billing", "orders", accept).AddMiddleware(refusing)
	w.AddConsumerHandler("", "orders", nil)
	w.AddHandler("relay", "orders", "", nil, func(*message.Message) ([]*message.Message, error) { return nil, nil })
	err := w.Start(t.Context())
	fields := configFields(err)
	for _, want := range []string{
		"Handler.Name", "Handler.Subscription", "Handler.Consume", "Handler.Publisher", "Handler.PublishTopic",
	} {
		if !fields[want] {
			t.Errorf("%s is not reported in: %v", want, err)
		}
	}
	receive(t, "Done", w.Done())
}

func TestAddReportsWrongOptions(t *testing.T) {
	t.Parallel()
	w := newWorker(t, unreachable(t), quick(2))
	_, err := w.Add(router.Handler{
		Name: "billing", Category: "orders", Consume: accept,
		Publisher: shardpub.NewDeadLetterPublisher(),
		Options: shardpub.SubscriberConfig{
			ConsumerGroup: "x", SubscriptionName: shardpub.ExactName, Node: &shardpub.Node{}, Shards: -1, BatchSize: -1,
		},
	})
	var handler *router.HandlerError
	if !errors.As(err, &handler) || handler.Handler != "billing" {
		t.Errorf("Add: %v", err)
	}
	fields := configFields(err)
	for _, want := range []string{
		"Handler.Publisher", "Handler.Options.ConsumerGroup", "Handler.Options.SubscriptionName", "Handler.Options.Node",
		"Handler.Options.Shards", "Handler.Options.BatchSize",
	} {
		if !fields[want] {
			t.Errorf("%s is not reported in: %v", want, err)
		}
	}
	stop(t, w)
}
