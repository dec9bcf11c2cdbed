package shardpub_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/shardpub"
)

// A handler's time begins when it has the message: waiting for a slot, or for
// somebody who reads the channel, is nobody's failure (P-35).
func TestHandlerTimeoutBeginsAtTheHandOver(t *testing.T) {
	t.Parallel()
	r := newRig(t, quick)
	r.appendRound(orders, 16)
	sub := r.subscriber(shards(8), func(c *shardpub.SubscriberConfig) {
		c.MaxInFlight, c.HandlerTimeout = 1, 2*time.Second
		c.Retry = shardpub.RetryPolicy{Delay: shardpub.NoDelay}
	})
	var expired atomic.Int32
	serve(r.subscribe(sub, orders), func(m *message.Message) error {
		select {
		case <-m.Context().Done():
			expired.Add(1)
			return context.Cause(m.Context())
		case <-time.After(250 * time.Millisecond):
			return nil
		}
	})
	r.until("all are covered", func() bool { return r.covered(8) == 16 })
	if n := len(r.letters()); n > 0 || expired.Load() > 0 {
		t.Errorf("%d healthy events became dead letters, %d contexts had expired", n, expired.Load())
	}
}

// One lost connection must not keep a poison event from ever being parked: a
// good beat is word from the database, too (P-36).
func TestPoisonInAFullBucketIsParkedThoughAConnectionWasLost(t *testing.T) {
	t.Parallel()
	r := newRig(t, quick)
	r.appendTo("orders-1", 20)
	sub := r.subscriber(func(c *shardpub.SubscriberConfig) {
		c.PrefetchCount, c.BatchSize = 4, 4
		c.Retry = shardpub.RetryPolicy{MaxDeliveries: 3, Delay: 200 * time.Millisecond}
	})
	called := make(chan struct{})
	var once sync.Once
	serve(r.subscribe(sub, orders), func(*message.Message) error {
		once.Do(func() { close(called) })
		return errors.New("poison")
	})
	<-called
	r.exec(endConnections)
	r.until("it is parked", func() bool { return len(r.letters()) > 0 })
}

// A handler may change its message in place: what is delivered again is made
// anew, and nobody else sees it.
func TestMessageIsItsHandlersOwn(t *testing.T) {
	t.Parallel()
	r := newRig(t, quick)
	a := r.subscribe(r.subscriber(), orders)
	b := r.subscribe(r.subscriber(func(c *shardpub.SubscriberConfig) { c.ConsumerGroup = "other" }), orders)
	r.until("both own their bucket", func() bool { return r.owned() == 2 })
	r.appendTo("orders-1", 1)
	first, others := receive(t, a), receive(t, b)
	want := string(others.Payload)
	for i := range first.Payload {
		first.Payload[i] = 'x'
	}
	if string(others.Payload) != want {
		t.Errorf("another subscription sees %q", others.Payload)
	}
	others.Ack()
	first.Nack()
	again := receive(t, a)
	if string(again.Payload) != want {
		t.Errorf("delivered again: %q, want %q", again.Payload, want)
	}
	again.Ack()
}

// OnError may close what it reports on.
func TestOnErrorMayCloseTheNode(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	closed := make(chan struct{})
	var node *shardpub.Node
	var once sync.Once
	node, _ = r.newNode(r.pool, quick, func(c *shardpub.NodeConfig) {
		c.OnError = func(context.Context, error) {
			once.Do(func() { _ = node.Close(); close(closed) })
		}
	})
	r.subscribe(r.subscriber(on(node)), orders)
	r.until("the bucket is owned", func() bool { return r.owned() == 1 })
	r.exec(endConnections)
	ends(t, "Close in OnError", closed)
}

// The caller's pool may have a use for notifications; the Node's session has its
// own.
func TestCallersOnNotificationIsNotTheSessions(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := r.pool.Config()
	cfg.ConnConfig.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) {}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	node, _ := r.newNode(pool, quick)
	messages := r.subscribe(r.subscriber(on(node)), orders)
	r.appendTo("orders-1", 1)
	receive(t, messages).Ack()
	r.reaches(1)
}
