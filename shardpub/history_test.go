package shardpub_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/suisha-go/suisha/lease"
	"github.com/suisha-go/suisha/shardpub"
)

// patientLease outlives the outages of these tests.
func patientLease(c *shardpub.NodeConfig) {
	c.Lease = lease.Config{TTL: 20 * time.Second, RenewInterval: 2 * time.Second}
}

// lose takes the events of orders-1 beyond the first out of the log, as a
// promoted standby that had not got them. Others may come in their places.
func (r *rig) lose() {
	r.t.Helper()
	err := pgx.BeginFunc(r.t.Context(), r.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(r.t.Context(), `set local kiroku.enable_hard_deletes = 'on';
			delete from kiroku.stream_events where stream_version >= 2;
			delete from kiroku.events e where not exists (select from kiroku.stream_events s where s.event_id = e.event_id);
			update kiroku.streams set stream_version = 1;
			update kiroku.subscriptions set last_seen = least(last_seen, 1)`)
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// gets handles messages until the position came, and wants the others to have
// come by then.
func gets(t *testing.T, ch <-chan *message.Message, until int64, others ...int64) {
	t.Helper()
	seen := map[int64]bool{}
	for !seen[until] {
		m := receive(t, ch)
		seen[deliveryOf(t, m).Position] = true
		m.Ack()
	}
	for _, p := range others {
		if !seen[p] {
			t.Errorf("the event at position %d was skipped; came: %v", p, seen)
		}
	}
}

// What was settled in a log that is no more must not be written over the one
// that took its place, however soon the checkpoint is due (P-31).
func TestMarksOfALostHistoryAreNotWritten(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := &wire{}
	node, said := r.newNode(w.pool(r), quick, patientLease, func(c *shardpub.NodeConfig) { c.PollInterval = 5 * time.Second })
	r.appendTo("orders-1", 3)
	messages := r.subscribe(r.subscriber(on(node)), orders)
	receive(t, messages).Ack()
	r.reaches(1)
	second := receive(t, messages)
	w.cut()
	r.lose()
	r.appendTo("orders-1", 3) // positions 2 to 4 of the new history
	second.Ack()
	receive(t, messages).Ack()
	time.Sleep(time.Second) // the flusher is waiting for a connection
	w.mend()
	gets(t, messages, 4, 2, 3)
	if _, ok := reported[*shardpub.HistoryError](said); !ok {
		t.Error("nothing was reported")
	}
}

// The same for the checkpoint that goes with a dead letter, and for the one of a
// release: the bucket is not given back as if it had got that far.
func TestLettersAndReleasesOfALostHistoryAreNotWritten(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := &wire{}
	node, _ := r.newNode(w.pool(r), quick, patientLease, func(c *shardpub.NodeConfig) { c.PollInterval = 5 * time.Second })
	lazy := func(c *shardpub.SubscriberConfig) { c.CheckpointInterval = time.Hour }
	r.appendTo("orders-1", 3)
	parks := r.subscriber(on(node), lazy, retry(shardpub.RetryPolicy{MaxDeliveries: 1}))
	parked := r.subscribe(parks, orders)
	releases := r.subscriber(on(node), lazy, func(c *shardpub.SubscriberConfig) { c.ConsumerGroup = "releases" })
	released := r.subscribe(releases, orders)
	for _, ch := range []<-chan *message.Message{parked, released} {
		receive(t, ch).Ack()
		receive(t, ch).Ack()
	}
	poison := receive(t, parked)
	receive(t, released).Ack()
	w.cut()
	r.lose()
	r.appendTo("orders-1", 3)
	poison.Nack()
	closed := make(chan struct{})
	go func() { defer close(closed); _ = releases.Close() }()
	time.Sleep(500 * time.Millisecond) // both are trying to write
	w.mend()
	gets(t, parked, 4, 2, 3)
	<-closed
	if n := len(r.letters()); n > 0 {
		t.Errorf("%d dead letters of events that never were", n)
	}
	if at := ask[int64](r, `select coalesce(max(last_seen), 0) from kiroku.subscriptions where subscription_name = 'releases'`); at > 1 {
		t.Errorf("released at %d of another log", at)
	}
}

// A cursor that has not moved since the bucket came is known again, too (P-31).
func TestCursorAtTheStartIsKnownAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := &wire{}
	r.appendTo("orders-1", 3)
	first := r.subscriber()
	gets(t, r.subscribe(first, orders), 3)
	r.reaches(3)
	_ = first.Close()
	node, _ := r.newNode(w.pool(r), quick, patientLease)
	sub := r.subscriber(on(node))
	messages := r.subscribe(sub, orders)
	r.until("the bucket is read on", func() bool {
		st := sub.Status()[0]
		return len(st.Buckets) == 1 && st.Buckets[0].Read == 3
	})
	w.cut()
	r.lose()
	r.appendTo("orders-1", 3)
	w.mend()
	gets(t, messages, 4, 2, 3)
}

// A bucket whose OnAssigned runs while the log changes begins again like all
// others (P-31).
func TestBucketsThatOpenWhileTheLogChangesBeginAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := &wire{}
	r.appendTo("orders-1", 3)
	first := r.subscriber()
	gets(t, r.subscribe(first, orders), 3)
	r.reaches(3)
	_ = first.Close()
	node, said := r.newNode(w.pool(r), quick, patientLease)
	inside, leave := make(chan struct{}, 8), make(chan struct{})
	messages := r.subscribe(r.subscriber(on(node), func(c *shardpub.SubscriberConfig) {
		c.OnAssigned = func(context.Context, shardpub.Assignment) { inside <- struct{}{}; <-leave }
	}), orders)
	answer(t, inside)
	w.cut()
	r.lose()
	r.appendTo("orders-1", 3)
	w.mend()
	r.until("the change is reported", func() bool {
		_, ok := reported[*shardpub.HistoryError](said)
		return ok
	})
	close(leave)
	gets(t, messages, 4, 2, 3)
}
