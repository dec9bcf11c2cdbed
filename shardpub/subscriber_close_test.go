package shardpub_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"

	"github.com/suisha-go/suisha/lease"
	"github.com/suisha-go/suisha/shardpub"
)

func TestSubscribeAfterCloseIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.subscriber()
	if err := sub.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := sub.Subscribe(t.Context(), orders); !errors.Is(err, shardpub.ErrSubscriberClosed) {
		t.Errorf("Subscribe: %v", err)
	}
	if err := sub.SubscribeInitialize(orders); !errors.Is(err, shardpub.ErrSubscriberClosed) {
		t.Errorf("SubscribeInitialize: %v", err)
	}
	if err := r.node.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.subscriber().Subscribe(t.Context(), orders); !errors.Is(err, shardpub.ErrNodeClosed) {
		t.Errorf("on a closed Node: %v", err)
	}
}

// Case 23: many Close calls at once, while messages wait for their Ack and others
// subscribe. All return together, nothing panics, each channel is closed once.
func TestCloseFromEverywhereAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.appendRound(orders, 32)
	sub, err := shardpub.NewSubscriber(r.pool, r.config(shards(8), drain(200*time.Millisecond), on(nil)), nil)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	read := func(ch <-chan *message.Message, held chan<- struct{}) {
		for msg := range ch {
			all.Go(func() {
				select {
				case held <- struct{}{}:
				default:
				}
				<-msg.Context().Done()
				msg.Nack()
			})
		}
		if _, open := <-ch; open {
			t.Error("a message came after the end")
		}
	}
	held := make(chan struct{}, 8)
	ch := r.subscribe(sub, orders)
	all.Go(func() { read(ch, held) })
	answer(t, held)
	start := make(chan struct{})
	for range 256 {
		all.Go(func() {
			<-start
			if err := sub.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
	for range 16 {
		all.Go(func() {
			<-start
			ch, err := sub.Subscribe(t.Context(), orders)
			if err != nil {
				if !errors.Is(err, shardpub.ErrSubscriberClosed) {
					t.Errorf("Subscribe during Close: %v", err)
				}
				return
			}
			read(ch, held)
		})
	}
	close(start)
	finished := make(chan struct{})
	go func() { all.Wait(); close(finished) }()
	ends(t, "all of it", finished)
	if n := r.owned(); n != 0 {
		t.Errorf("%d buckets are still owned", n)
	}
	if letters := r.letters(); len(letters) != 0 {
		t.Errorf("%d dead letters", len(letters))
	}
	if err := sub.DrainErrors(); err != nil {
		t.Errorf("handlers that heeded their contexts: %v", err)
	}
}

// Whoever loses the race against Close is told so, at whatever point it was.
func TestSubscribeThatRacesCloseIsToldSo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for i := range 25 {
		sub, err := shardpub.NewSubscriber(r.pool, r.config(shards(4), on(nil)), nil)
		if err != nil {
			t.Fatal(err)
		}
		var racing sync.WaitGroup
		for range 4 {
			racing.Go(func() {
				ch, err := sub.Subscribe(t.Context(), orders)
				switch {
				case err == nil:
					ends(t, "the channel", ch)
				case !errors.Is(err, shardpub.ErrSubscriberClosed):
					t.Errorf("Subscribe: %v", err)
				}
			})
		}
		racing.Go(func() {
			<-time.After(time.Duration(i) * 2 * time.Millisecond)
			if err := sub.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
		racing.Wait()
	}
	if n := r.owned(); n != 0 {
		t.Errorf("%d buckets are still owned", n)
	}
}

// Nobody reads the channel: what waits to be sent is nobody's, so Close waits
// for nothing.
func TestCloseReturnsThoughNobodyReadsTheChannel(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.appendRound(orders, 64)
	sub := r.subscriber(shards(8), drain(10*patience))
	ch := r.subscribe(sub, orders)
	r.until("messages wait to be read", func() bool { return queued(sub) == 64 })
	closed := make(chan error, 1)
	go func() { closed <- sub.Close() }()
	if err := answer(t, closed); err != nil {
		t.Error(err)
	}
	ends(t, "the channel", ch)
	if n := r.owned(); n != 0 {
		t.Errorf("%d buckets are still owned", n)
	}
	if n := r.covered(8); n != 0 {
		t.Errorf("checkpoints cover %d events that nobody handled", n)
	}
}

// The end of the Subscribe context drains like Close: what runs finishes, under a
// context that is still alive, and counts.
func TestEndOfTheSubscribeContextDrains(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.appendTo("orders-1", 3)
	sub := r.subscriber()
	ctx, cancel := context.WithCancel(t.Context())
	ch, err := sub.Subscribe(ctx, orders)
	if err != nil {
		t.Fatal(err)
	}
	msg := receive(t, ch)
	cancel()
	r.until("the bucket drains", func() bool {
		st := sub.Status()
		return len(st) == 1 && len(st[0].Buckets) == 1 && st[0].Buckets[0].State == shardpub.Draining
	})
	if err := msg.Context().Err(); err != nil {
		t.Errorf("the message's context has ended: %v", err)
	}
	msg.Ack()
	ends(t, "the channel", ch)
	if at := r.checkpoint(0); at != 1 || r.owned() != 0 {
		t.Errorf("checkpoint %d, %d owned, want 1 and 0", at, r.owned())
	}
	// The Subscriber goes on: a second Subscribe is another worker (S-10, P-2).
	again := receive(t, r.subscribe(sub, orders))
	before, after := deliveryOf(t, msg), deliveryOf(t, again)
	if after.Position != 2 || after.Worker == before.Worker {
		t.Errorf("then position %d by %s, before by %s", after.Position, after.Worker, before.Worker)
	}
	again.Ack()
}

// P-19: a handler that heeds nothing costs its bucket's release, and Close does
// not wait for it.
func TestHandlerThatOutlivesTheDrainIsReported(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.appendRound(orders, 16)
	sub := r.subscriber(shards(2), drain(50*time.Millisecond))
	ch := r.subscribe(sub, orders)
	stuck := receive(t, ch)
	other := receive(t, ch)
	d := deliveryOf(t, stuck)
	began := time.Now()
	go func() {
		<-other.Context().Done()
		other.Nack()
	}()
	closed := make(chan error, 1)
	go func() { closed <- sub.Close() }()
	if err := answer(t, closed); err != nil {
		t.Errorf("Close: %v", err)
	}
	if cause := context.Cause(stuck.Context()); !errors.Is(cause, lease.ErrShutdown) {
		t.Errorf("the stuck handler's context: %v", cause)
	}
	var late *shardpub.DrainError
	if err := sub.DrainErrors(); !errors.As(err, &late) {
		t.Fatalf("DrainErrors: %v", err)
	}
	if late.Subscription != group || late.Bucket != d.Bucket || late.Stream != d.Stream || int64(late.Position) != d.Position || late.Since.After(began) {
		t.Errorf("%+v, want %+v", late, d)
	}
	if owner := ask[int](r, `select bucket from keiro.keiro_subscription_shards where owner_worker_id is not null`); owner != d.Bucket || r.owned() != 1 {
		t.Errorf("bucket %d is owned, %d in all, want %d alone", owner, r.owned(), d.Bucket)
	}
	if n := len(r.letters()); n != 0 {
		t.Errorf("%d dead letters", n)
	}
	stuck.Ack() // too late: it belongs to nobody
	r.until("it is reported", func() bool {
		_, ok := reported[*shardpub.DrainError](r.said)
		return ok
	})
}

// P-35: after our own cancellation an error is no attempt and writes nothing.
func TestErrorAfterOurCancellationIsNoAttempt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.appendTo("orders-1", 1)
	once := retry(shardpub.RetryPolicy{MaxDeliveries: 1})
	sub := r.subscriber(once, drain(50*time.Millisecond))
	running := make(chan struct{}, 1)
	done := serve(r.subscribe(sub, orders), func(msg *message.Message) error {
		running <- struct{}{}
		<-msg.Context().Done()
		return fmt.Errorf("interrupted: %w", msg.Context().Err())
	})
	answer(t, running)
	if err := sub.Close(); err != nil {
		t.Fatal(err)
	}
	<-done
	if n := len(r.letters()); n != 0 || r.checkpoint(0) != 0 {
		t.Errorf("%d dead letters, checkpoint %d", n, r.checkpoint(0))
	}
	again := receive(t, r.subscribe(r.subscriber(once), orders))
	if d := deliveryOf(t, again); d.Attempt != 0 || d.Position != 1 {
		t.Errorf("then attempt %d at %d", d.Attempt, d.Position)
	}
	again.Ack()
}

// No goroutine outlives Close, whatever was going on.
func TestCloseLeaksNoGoroutine(t *testing.T) { //nolint:paralleltest // it looks at all goroutines
	r := newRig(t)
	r.appendRound(orders, 200)
	pool := r.pool
	if err := pool.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := goleak.IgnoreCurrent()
	sub, err := shardpub.NewSubscriber(pool, r.config(shards(16), on(nil), drain(time.Second)), nil)
	if err != nil {
		t.Fatal(err)
	}
	var seen diary
	busy := serve(r.subscribe(sub, orders), handleWith(&seen))
	other, err := sub.Subscribe(t.Context(), orders) // shares, and is never read
	if err != nil {
		t.Fatal(err)
	}
	r.until("some are handled", func() bool { return seen.len() > 50 })
	if err := sub.Close(); err != nil {
		t.Error(err)
	}
	ends(t, "the handlers", busy)
	ends(t, "the other channel", other)
	goleak.VerifyNone(t, before)
}
