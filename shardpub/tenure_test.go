package shardpub_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/lease"
	"github.com/suisha-go/suisha/shardpub"
)

// quick makes a Node beat and poll often.
func quick(c *shardpub.NodeConfig) {
	c.Lease = lease.Config{TTL: 2 * time.Second, RenewInterval: 400 * time.Millisecond}
	c.PollInterval = 200 * time.Millisecond
}

const endConnections = `select pg_terminate_backend(pid) from pg_stat_activity
	where datname = current_database() and pid <> pg_backend_pid()`

// The same worker gets a bucket again while a handler of its earlier tenure
// still runs: not before that handler has ended, and its ack changes nothing
// (P-21).
func TestAckOfAnEarlierTenureChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, quick)
	r.appendTo("orders-1", 2)
	messages := r.subscribe(r.subscriber(), orders)
	old := receive(t, messages)
	first := deliveryOf(t, old)

	freed, err := lease.Relinquish(t.Context(), r.pool, group, first.Worker, false)
	if err != nil || len(freed) != 1 {
		t.Fatalf("relinquish: %v, %v", freed, err)
	}
	select {
	case <-old.Context().Done():
	case <-time.After(20 * time.Second):
		t.Fatal("the handler was not told")
	}
	if cause := context.Cause(old.Context()); !errors.Is(cause, lease.ErrLost) {
		t.Errorf("cause is %v", cause)
	}
	select {
	case m := <-messages:
		t.Fatalf("%s was handed out while a handler of the earlier tenure runs", m.UUID)
	case <-time.After(1500 * time.Millisecond):
	}
	old.Ack()
	again := receive(t, messages)
	second := deliveryOf(t, again)
	if second.Position != first.Position || second.Attempt != 0 {
		t.Errorf("got position %d attempt %d, want %d again, attempt 0", second.Position, second.Attempt, first.Position)
	}
	if at := r.checkpoint(0); at != 0 {
		t.Errorf("the late ack moved the checkpoint to %d", at)
	}
	again.Ack()
	next := receive(t, messages)
	next.Ack()
	r.reaches(kiroku.Position(deliveryOf(t, next).Position))
}

// The log changed under the cursor, as after a promotion that lost commits:
// noticed at the next reconnect, reported, and read again from the checkpoint
// (P-31).
func TestAnotherLogUnderTheCursorIsNoticedAndReadFromTheCheckpoints(t *testing.T) {
	t.Parallel()
	r := newRig(t, quick)
	r.appendTo("orders-1", 3)
	messages := r.subscribe(r.subscriber(func(c *shardpub.SubscriberConfig) { c.CheckpointInterval = time.Hour }), orders)
	for range 3 {
		receive(t, messages).Ack()
	}
	// The last event never happened: another one stands in its place.
	lost := ask[uuid.UUID](r, `select event_id from kiroku.stream_events where stream_id = 0 and stream_version = 3`)
	err := pgx.BeginFunc(t.Context(), r.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `set local kiroku.enable_hard_deletes = 'on';
			delete from kiroku.stream_events where stream_version = 3;
			delete from kiroku.events e where not exists (select from kiroku.stream_events s where s.event_id = e.event_id);
			update kiroku.streams set stream_version = 2`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	r.appendTo("orders-1", 1)
	r.exec(endConnections)

	seen := map[int64]bool{}
	for !seen[3] {
		m := receive(t, messages)
		d := deliveryOf(t, m)
		seen[d.Position] = true
		if d.Position == 3 && d.EventID == lost {
			t.Fatal("the event that was lost came again")
		}
		m.Ack()
	}
	r.until("the change is reported", func() bool {
		_, ok := reported[*shardpub.HistoryError](r.said)
		return ok
	})
}

// A checkpoint beyond the end of the log stops its bucket and says so (P-31).
func TestCheckpointBeyondTheHeadStopsTheBucketAndSaysSo(t *testing.T) {
	t.Parallel()
	r := newRig(t, quick)
	r.appendTo("orders-1", 1)
	sub := r.subscriber(shards(2))
	if err := sub.SubscribeInitialize(orders); err != nil {
		t.Fatal(err)
	}
	r.exec(`update kiroku.subscriptions set last_seen = 1000 where consumer_group_member = 1`)
	r.subscribe(sub, orders)
	r.until("it is reported", func() bool {
		beyond, ok := reported[*shardpub.BeyondHeadError](r.said)
		return ok && beyond.Checkpoint == 1000 && beyond.Head == 1
	})
	r.until("Status shows it", func() bool {
		return slices.ContainsFunc(sub.Status()[0].Buckets, func(b shardpub.BucketStatus) bool {
			return b.Bucket == 1 && b.LastError != nil && b.State == shardpub.Opening
		})
	})
}

// Ending the server's connections loses no event: lost wakes cost a poll at the
// most (P-32, case 48).
func TestEventsAppendedWhileTheListenerIsGoneAreFound(t *testing.T) {
	t.Parallel()
	r := newRig(t, quick)
	messages := r.subscribe(r.subscriber(shards(4)), orders)
	got := map[int64]bool{}
	for i := range 10 {
		r.exec(endConnections)
		r.appendTo(fmt.Sprintf("orders-%d", i), 1)
	}
	for len(got) < 10 {
		m := receive(t, messages)
		got[deliveryOf(t, m).Position] = true
		m.Ack()
	}
}

// The checkpoints of a subscription without events follow the log, also while
// another one of the same process is busy all the time: the next owner does not
// read the log again.
func TestCheckpointsOfAQuietSubscriptionFollowTheLogBesideABusyOne(t *testing.T) {
	t.Parallel()
	r := newRig(t, quick)
	quiet := r.subscriber(shards(2), func(c *shardpub.SubscriberConfig) { c.ConsumerGroup = "quiet" })
	r.subscribe(quiet, "nothing")
	messages := r.subscribe(r.subscriber(), orders)
	go func() {
		for m := range messages {
			m.Ack()
		}
	}()
	began := r.appendTo("orders-1", 1)
	r.until("the quiet subscription's checkpoints have followed", func() bool {
		r.appendTo("orders-1", 1)
		return ask[int](r, `select count(*) from kiroku.subscriptions where subscription_name = 'quiet' and last_seen > $1`, int64(began)) == 2
	})
}
