package shardpub_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/suisha-go/suisha/lease"
	"github.com/suisha-go/suisha/shardpub"
)

// closesWithin fails if Close takes longer. It returns what the Close left.
func closesWithin(t *testing.T, sub *shardpub.Subscriber, limit time.Duration) error {
	t.Helper()
	closed := make(chan struct{})
	go func() { defer close(closed); _ = sub.Close() }()
	select {
	case <-closed:
	case <-time.After(limit):
		t.Fatalf("Close still blocks after %s", limit)
	}
	return sub.DrainErrors()
}

// unwritten is a subscriber that has settled an event whose checkpoint is still
// to be written.
func (r *rig) unwritten() *shardpub.Subscriber {
	r.appendTo("orders-1", 1)
	sub := r.subscriber(drain(time.Second), func(c *shardpub.SubscriberConfig) { c.CheckpointInterval = time.Hour })
	receive(r.t, r.subscribe(sub, orders)).Ack()
	return sub
}

// Whoever locks the row of a checkpoint does not hold up a Close for ever: the
// bucket keeps its lease until that runs out (P-19).
func TestCloseIsBoundedWhileTheCheckpointRowIsLocked(t *testing.T) {
	t.Parallel()
	r := newRig(t, patientLease)
	sub := r.unwritten()
	tx, err := r.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), `select 1 from kiroku.subscriptions for update`); err != nil {
		t.Fatal(err)
	}
	closesWithin(t, sub, 12*time.Second)
	if _, ok := reported[*shardpub.BucketError](r.said); !ok {
		t.Error("nothing was reported")
	}
}

// Nor does a database that refuses the checkpoint.
func TestCloseIsBoundedWhenTheReleaseFails(t *testing.T) {
	t.Parallel()
	r := newRig(t, patientLease)
	sub := r.unwritten()
	r.exec(`create function public.no() returns trigger language plpgsql as 'begin raise exception ''disk full''; end'`)
	r.exec(`create trigger no before insert or update on kiroku.subscriptions for each row execute function public.no()`)
	closesWithin(t, sub, 12*time.Second)
	r.exec(`drop trigger no on kiroku.subscriptions`)
	b, ok := reported[*shardpub.BucketError](r.said)
	if !ok || b.Doing != "release" {
		t.Errorf("reported %v", b)
	}
	// Nothing is lost: the event comes again.
	if d := deliveryOf(t, receive(t, r.subscribe(r.subscriber(), orders))); d.Position != 1 {
		t.Errorf("position %d came", d.Position)
	}
}

// A checkpoint row that is locked holds up the checkpoint of no other bucket.
func TestLockedCheckpointRowHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	r := newRig(t, quick)
	sub := r.subscriber(shards(2))
	if err := sub.SubscribeInitialize(orders); err != nil {
		t.Fatal(err)
	}
	tx, err := r.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `select 1 from kiroku.subscriptions where consumer_group_member = 0 for update`); err != nil {
		t.Fatal(err)
	}
	r.appendTo(r.streamIn(0, 2), 1)
	last := r.appendTo(r.streamIn(1, 2), 1)
	serve(r.subscribe(sub, orders), func(*message.Message) error { return nil })
	r.until("the other's is written", func() bool { return r.checkpoint(1) == last })
	if at := r.checkpoint(0); at != 0 {
		t.Errorf("the locked row says %d", at)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.until("it follows when the lock is gone", func() bool { return r.checkpoint(0) > 0 })
	if errs := r.said.errors(); len(errs) > 0 {
		t.Errorf("reported %v", errs)
	}
}

// An OnRevoked that hangs costs its bucket's release, and Close returns and
// names it.
func TestHungOnRevokedDoesNotHoldUpClose(t *testing.T) {
	t.Parallel()
	r := newRig(t, patientLease)
	block := make(chan struct{})
	sub := r.subscriber(shards(2), drain(200*time.Millisecond), func(c *shardpub.SubscriberConfig) {
		c.OnRevoked = func(_ context.Context, a shardpub.Assignment, _ lease.Reason) {
			if a.Bucket == 0 {
				<-block
			}
		}
	})
	defer close(block)
	r.subscribe(sub, orders)
	r.until("both are here", func() bool { return len(r.said.observed(shardpub.BucketAssigned)) == 2 })
	err := closesWithin(t, sub, 8*time.Second)
	var late *shardpub.HookError
	if !errors.As(err, &late) || late.Hook != "OnRevoked" || late.Bucket != 0 {
		t.Errorf("DrainErrors: %v", err)
	}
	if n := r.owned(); n != 1 {
		t.Errorf("%d buckets are still owned, want the hung one", n)
	}
}

// A bucket that waits for OnAssigned when it has to go is named, too.
func TestHungOnAssignedDoesNotHoldUpClose(t *testing.T) {
	t.Parallel()
	r := newRig(t, patientLease)
	block, entered := make(chan struct{}), make(chan struct{}, 1)
	sub := r.subscriber(drain(200*time.Millisecond), func(c *shardpub.SubscriberConfig) {
		c.OnAssigned = func(context.Context, shardpub.Assignment) { entered <- struct{}{}; <-block }
	})
	defer close(block)
	r.subscribe(sub, orders)
	answer(t, entered)
	err := closesWithin(t, sub, 8*time.Second)
	var late *shardpub.HookError
	if !errors.As(err, &late) || late.Hook != "OnAssigned" {
		t.Errorf("DrainErrors: %v", err)
	}
}

// What hooks do to themselves is reported, and kills nothing. A bucket whose
// OnAssigned panicked goes to another worker.
func TestPanicsOfHooksAreReported(t *testing.T) {
	t.Parallel()
	r := newRig(t, quick, func(c *shardpub.NodeConfig) {
		observe := c.Observe
		c.Observe = func(e shardpub.Event) {
			observe(e)
			panic("observed")
		}
	})
	var panicked atomic.Int32
	bad := r.subscriber(func(c *shardpub.SubscriberConfig) {
		c.OnAssigned = func(context.Context, shardpub.Assignment) { panicked.Add(1); panic("assigned") }
	})
	r.subscribe(bad, orders)
	r.until("it panicked and gave the bucket back", func() bool { return panicked.Load() == 1 && r.owned() == 0 })
	good := r.subscriber(func(c *shardpub.SubscriberConfig) {
		c.OnRevoked = func(context.Context, shardpub.Assignment, lease.Reason) { panic("revoked") }
	})
	messages := r.subscribe(good, orders)
	r.appendTo("orders-1", 1)
	receive(t, messages).Ack()
	if err := closesWithin(t, good, 8*time.Second); err != nil {
		t.Errorf("DrainErrors: %v", err)
	}
	for _, name := range []string{"OnAssigned panicked: assigned", "OnRevoked panicked: revoked", "Observe panicked: observed"} {
		r.until("it is reported: "+name, func() bool {
			for _, err := range r.said.errors() {
				if strings.Contains(err.Error(), name) {
					return true
				}
			}
			return false
		})
	}
}

// An Ack after the drain deadline counts as long as the lease is trusted: the
// bucket goes with its checkpoint then, and nothing is repeated (P-18).
func TestLateAckUnderATrustedLeaseCounts(t *testing.T) {
	t.Parallel()
	r := newRig(t, patientLease)
	r.appendTo(r.streamIn(0, 2), 1)
	r.appendTo(r.streamIn(1, 2), 1)
	a := r.subscriber(shards(2), drain(300*time.Millisecond))
	ma := r.subscribe(a, orders)
	held := []*message.Message{receive(t, ma), receive(t, ma)}
	node, _ := r.newNode(r.pool, patientLease)
	mb := r.subscribe(r.subscriber(on(node), shards(2)), orders)
	r.until("a drain is over its time", func() bool {
		_, ok := reported[*shardpub.DrainError](r.said)
		return ok
	})
	late, _ := reported[*shardpub.DrainError](r.said)
	for _, m := range held {
		m.Ack()
	}
	r.until("its bucket was released with its checkpoint", func() bool {
		return r.checkpoint(late.Bucket) >= late.Position &&
			ask[int](r, `select count(distinct owner_worker_id)::int from keiro.keiro_subscription_shards where owner_worker_id is not null`) == 2
	})
	select {
	case m := <-mb:
		t.Errorf("position %d came again", deliveryOf(t, m).Position)
	case <-time.After(500 * time.Millisecond):
	}
	if err := closesWithin(t, a, 5*time.Second); err != nil {
		t.Errorf("a Close that nothing held up says %v", err)
	}
}

// A handler that holds up a Close is named, also when its bucket had begun to
// move before.
func TestDrainErrorsNameHandlersOfBucketsThatMoved(t *testing.T) {
	t.Parallel()
	r := newRig(t, quick)
	stuck := make(chan struct{})
	sub := r.subscriber(shards(2), drain(2*time.Second))
	serve(r.subscribe(sub, orders), func(*message.Message) error { <-stuck; return nil })
	r.appendTo(r.streamIn(0, 2), 1)
	r.appendTo(r.streamIn(1, 2), 1)
	r.until("both are out", func() bool {
		n := 0
		for _, b := range sub.Status()[0].Buckets {
			n += len(b.InFlight)
		}
		return n == 2
	})
	node, _ := r.newNode(r.pool, quick)
	other := r.subscriber(on(node), shards(2))
	go serve(r.subscribe(other, orders), func(*message.Message) error { return nil })
	r.until("one moves", func() bool {
		for _, b := range sub.Status()[0].Buckets {
			if b.State == shardpub.Draining {
				return true
			}
		}
		return false
	})
	_ = sub.Close()
	if n := strings.Count(fmt.Sprint(sub.DrainErrors()), "\n") + 1; n != 2 {
		t.Errorf("%d handlers outlived Close according to DrainErrors, want 2", n)
	}
	close(stuck)
}

// Dead letters that wait for a lock leave a connection to all others.
func TestLockedDeadLettersHoldUpNoOther(t *testing.T) {
	t.Parallel()
	r := newRig(t, patientLease)
	r.appendRound(orders, 64)
	sub := r.subscriber(shards(16), retry(shardpub.RetryPolicy{MaxDeliveries: 1}))
	if err := sub.SubscribeInitialize(orders); err != nil {
		t.Fatal(err)
	}
	fine := r.subscriber(func(c *shardpub.SubscriberConfig) { c.ConsumerGroup = "fine" })
	d := &diary{}
	serve(r.subscribe(fine, "others"), handleWith(d))
	r.appendTo("others-1", 1)
	r.until("it works", func() bool { return d.len() == 1 })
	tx, err := r.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), `lock table kiroku.dead_letters in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	serve(r.subscribe(sub, orders), func(*message.Message) error { return errors.New("poison") })
	r.until("all are held", func() bool { return len(sub.Status()[0].Lease.Held) == 16 })
	time.Sleep(3 * time.Second)
	worst := time.Duration(0)
	for i := range 8 {
		began := time.Now()
		r.appendTo("others-1", 1)
		r.until("it comes", func() bool { return d.len() == i+2 })
		worst = max(worst, time.Since(began))
	}
	if worst > 2*time.Second {
		t.Errorf("an event of the other subscription took %s", worst)
	}
}

// An event that comes between the return of OnAssigned and the end of what it
// counted as is handled without another one behind it.
func TestEventThatComesAsOnAssignedReturnsIsHandled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var node *shardpub.Node
	var sub *shardpub.Subscriber
	node, _ = r.newNode(r.pool, quick, func(c *shardpub.NodeConfig) {
		c.PollInterval = 100 * time.Millisecond
		c.Observe = func(e shardpub.Event) {
			if e.Kind == shardpub.BucketAssigned {
				time.Sleep(time.Second)
			}
		}
	})
	r.appendTo("orders-1", 1)
	sub = r.subscriber(on(node), func(c *shardpub.SubscriberConfig) {
		c.OnAssigned = func(context.Context, shardpub.Assignment) {}
	})
	ch := r.subscribe(sub, orders)
	select {
	case m := <-ch:
		m.Ack()
	case <-time.After(15 * time.Second):
		t.Errorf("the event does not come: %+v", sub.Status()[0].Buckets)
	}
}
