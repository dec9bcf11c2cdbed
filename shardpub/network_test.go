package shardpub_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/lease"
	"github.com/suisha-go/suisha/shardpub"
)

// Connections that lead nowhere any more, without a word, hold nothing up for
// longer than a statement may take: the feed takes another.
func TestBlackHoleIsNoStall(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := &wire{}
	node, said := r.newNode(w.pool(r), quick, patientLease)
	messages := r.subscribe(r.subscriber(on(node)), orders)
	r.appendTo("orders-1", 1)
	receive(t, messages).Ack()
	r.reaches(1)
	w.freeze()
	r.appendTo("orders-1", 1)
	select {
	case m := <-messages:
		m.Ack()
	case <-time.After(25 * time.Second):
		_, read := reported[*shardpub.ReadError](said)
		t.Fatalf("the event does not come; ReadError reported: %v", read)
	}
	r.reaches(2)
}

// Large events are fetched about once, whatever small bound there is on what
// waits in memory (P-33).
func TestLargeEventsAreFetchedAboutOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const n, size = 60, 256 << 10
	events := make([]kiroku.Event, n)
	for i := range events {
		events[i] = kiroku.Event{Type: "Big", Data: []byte(`{"p":"` + strings.Repeat("x", size) + `"}`)}
	}
	if _, err := kiroku.Append(t.Context(), r.pool, kiroku.StreamAppend{Stream: "orders-1", Events: events}); err != nil {
		t.Fatal(err)
	}
	w := &wire{}
	node, _ := r.newNode(w.pool(r), quick)
	sub := r.subscriber(on(node), func(c *shardpub.SubscriberConfig) { c.PrefetchBytes = 1 << 20 })
	serve(r.subscribe(sub, orders), func(*message.Message) error { return nil })
	r.reaches(n)
	if read := w.read.Load(); read > 3*n*size {
		t.Errorf("%d MiB came over the wire for %d MiB of events", read>>20, n*size>>20)
	}
}

// Without a session the beats have a connection of their own: dead letters that
// wait for a lock cost no lease (P-6).
func TestBeatsWithoutASessionAreNotStarved(t *testing.T) {
	t.Parallel()
	r := newRig(t, quick, func(c *shardpub.NodeConfig) {
		c.DisableSession = true
		c.Lease = lease.Config{TTL: 4 * time.Second, RenewInterval: time.Second}
	})
	r.appendRound(orders, 16)
	sub := r.subscriber(shards(8), retry(shardpub.RetryPolicy{MaxDeliveries: 1}))
	if err := sub.SubscribeInitialize(orders); err != nil {
		t.Fatal(err)
	}
	tx, err := r.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `lock table kiroku.dead_letters in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	serve(r.subscribe(sub, orders), func(*message.Message) error { return errors.New("poison") })
	r.until("all are held", func() bool { return len(sub.Status()[0].Lease.Held) == 8 })
	time.Sleep(10 * time.Second)
	st := sub.Status()[0].Lease
	if n := len(r.said.observed(shardpub.BucketRevoked)); n > 0 {
		t.Errorf("%d buckets were lost; last beat %s ago, %v", n, time.Since(st.LastBeat), st.LastError)
	}
	_ = tx.Rollback(t.Context())
	r.until("letters are written", func() bool { return len(r.letters()) > 0 })
}
