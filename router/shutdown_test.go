package router_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	wm "github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/middleware"
	"github.com/suisha-go/suisha/router"
	"github.com/suisha-go/suisha/shardpub"
)

// Public case 41: nothing that fails because of a shutdown is an attempt.
func TestShutdownPoisonsNothingAndCountsNoAttempt(t *testing.T) {
	t.Parallel()
	pool := database(t)
	const buckets = 8
	cfg := quick(buckets)
	cfg.DrainTimeout = 100 * time.Millisecond
	cfg.Retry = shardpub.RetryPolicy{MaxDeliveries: 1}
	queue, err := wm.PoisonQueue(shardpub.NewDeadLetterPublisher(), "parked")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 8 * buckets {
		add(t, pool, stream("orders", i), 1)
	}

	w := newWorker(t, pool, cfg)
	w.AddMiddleware(queue)
	entered := make(chan struct{}, 8*buckets)
	w.AddConsumerHandler("billing", "orders", func(msg *message.Message) error {
		entered <- struct{}{}
		<-msg.Context().Done()
		return middleware.Permanent(msg.Context().Err())
	})
	start(t, w)
	for range buckets {
		receive(t, "a handler in each bucket", entered)
	}
	stop(t, w)
	if letters := deadLetters(t, pool, "billing"); len(letters) != 0 {
		t.Errorf("%d dead letters, the first: %+v", len(letters), letters[0])
	}

	w = newWorker(t, pool, cfg)
	var seen diary
	w.AddConsumerHandler("billing", "orders", func(msg *message.Message) error {
		seen.note(msg)
		return nil
	})
	last := add(t, pool, "orders-last", 1)
	start(t, w)
	waitFor(t, w, "billing", last)
	if n := seen.len(); n != 8*buckets+1 {
		t.Errorf("%d events after the restart, want %d", n, 8*buckets+1)
	}
	for _, d := range seen.all() {
		if d.Attempt != 0 {
			t.Errorf("%s: attempt %d after the restart", d.Stream, d.Attempt)
		}
	}
	if letters := deadLetters(t, pool, "billing"); len(letters) != 0 {
		t.Errorf("%d dead letters after the restart", len(letters))
	}
}

// Public cases 19 and 20: closing neither cancels nor repeats what runs.
func TestHandlerFinishesItsStatementsDuringClose(t *testing.T) {
	t.Parallel()
	pool := database(t)
	add(t, pool, "orders-1", 1)
	var made calls
	first := make(chan struct{})
	handle := func(msg *message.Message) error {
		made.note("billing")
		for i := range 5 {
			if _, err := pool.Exec(msg.Context(), "select pg_sleep(0.2)"); err != nil {
				t.Errorf("statement %d: %v", i, err)
				return err
			}
			if i == 0 {
				close(first)
			}
		}
		return nil
	}
	w := newWorker(t, pool, quick(2))
	w.AddConsumerHandler("billing", "orders", handle)
	start(t, w)
	receive(t, "the first statement", first)
	stop(t, w)

	w = newWorker(t, pool, quick(2))
	w.AddConsumerHandler("billing", "orders", handle)
	last := add(t, pool, "others-1", 1)
	start(t, w)
	waitFor(t, w, "billing", last)
	stop(t, w)
	if n := len(made.of("billing")); n != 1 {
		t.Errorf("%d calls, want 1", n)
	}
	if letters := deadLetters(t, pool, "billing"); len(letters) != 0 {
		t.Errorf("dead letters: %+v", letters)
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
