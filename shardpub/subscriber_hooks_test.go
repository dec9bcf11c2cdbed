package shardpub_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/suisha-go/suisha/lease"
	"github.com/suisha-go/suisha/shardpub"
)

// revocation is one call of OnRevoked, and who owned the bucket then.
type revocation struct {
	shardpub.Assignment
	reason lease.Reason
	owner  uuid.NullUUID
}

// hooks are calls of OnAssigned and OnRevoked.
type hooks struct {
	mu       sync.Mutex
	assigned []shardpub.Assignment
	gone     map[int]<-chan struct{} // the contexts of OnAssigned
	revoked  []revocation
}

// on installs the hooks. wait, if not nil, holds up OnAssigned.
func (h *hooks) on(r *rig, wait func(context.Context)) func(*shardpub.SubscriberConfig) {
	h.gone = map[int]<-chan struct{}{}
	return func(c *shardpub.SubscriberConfig) {
		c.OnAssigned = func(ctx context.Context, a shardpub.Assignment) {
			if wait != nil {
				wait(ctx)
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			h.assigned = append(h.assigned, a)
			h.gone[a.Bucket] = ctx.Done()
		}
		c.OnRevoked = func(_ context.Context, a shardpub.Assignment, reason lease.Reason) {
			var owner uuid.NullUUID
			err := r.pool.QueryRow(context.WithoutCancel(r.t.Context()),
				`select owner_worker_id from keiro.keiro_subscription_shards where subscription_name = $1 and bucket = $2`, group, a.Bucket).Scan(&owner)
			if err != nil {
				r.t.Errorf("OnRevoked: %v", err)
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			h.revoked = append(h.revoked, revocation{a, reason, owner})
		}
	}
}

func (h *hooks) calls() (assigned []shardpub.Assignment, revoked []revocation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.assigned), slices.Clone(h.revoked)
}

// OnAssigned returns before the first delivery; OnRevoked is called after the
// last handler and before the release.
func TestHooksEncloseTheDeliveriesOfABucket(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.appendTo("orders-1", 3)
	gate, entered := make(chan struct{}), make(chan struct{}, 1)
	var h hooks
	sub := r.subscriber(h.on(r, func(context.Context) { entered <- struct{}{}; <-gate }))
	ch := r.subscribe(sub, orders)
	answer(t, entered)
	select {
	case <-ch:
		t.Fatal("a message came before OnAssigned returned")
	case <-time.After(300 * time.Millisecond):
	}
	close(gate)
	receive(t, ch).Ack()
	msg := receive(t, ch)
	d := deliveryOf(t, msg)
	assigned, revoked := h.calls()
	if len(assigned) != 1 || assigned[0] != (shardpub.Assignment{Subscription: group, Bucket: 0, Shards: 1}) || len(revoked) != 0 {
		t.Errorf("assigned %+v, revoked %+v", assigned, revoked)
	}
	select {
	case <-h.gone[0]:
		t.Error("the bucket is here and its context has ended")
	default:
	}
	closed := make(chan error, 1)
	go func() { closed <- sub.Close() }()
	r.until("the bucket drains", func() bool {
		st := sub.Status()
		return len(st) == 1 && len(st[0].Buckets) == 1 && st[0].Buckets[0].State == shardpub.Draining
	})
	if _, revoked := h.calls(); len(revoked) != 0 {
		t.Errorf("revoked while a handler runs: %+v", revoked)
	}
	msg.Ack()
	if err := answer(t, closed); err != nil {
		t.Error(err)
	}
	_, revoked = h.calls()
	if len(revoked) != 1 || revoked[0].reason != lease.Shutdown || revoked[0].owner.UUID != d.Worker || revoked[0].Assignment != assigned[0] {
		t.Errorf("revoked %+v", revoked)
	}
	ends(t, "the context of OnAssigned", h.gone[0])
}

// The reason says why a bucket goes: to another worker, or lost already.
func TestHooksHearWhyABucketGoes(t *testing.T) {
	t.Parallel()
	r := newRig(t, quick)
	var h hooks
	sub := r.subscriber(shards(4), h.on(r, nil))
	ch := r.subscribe(sub, orders)
	r.until("all are assigned", func() bool { a, _ := h.calls(); return len(a) == 4 })
	other := r.elsewhere(shards(4))
	r.subscribe(other, orders)
	r.until("two have moved", func() bool { _, v := h.calls(); return len(v) == 2 })
	_, moved := h.calls()
	for _, m := range moved {
		if m.reason != lease.Rebalanced || !m.owner.Valid {
			t.Errorf("moved: %+v", m)
		}
	}
	worker := sub.Status()[0].Worker
	r.until("they are released", func() bool {
		return ask[int](r, `select count(*) from keiro.keiro_subscription_shards where owner_worker_id = $1`, worker) == 2
	})
	freed, err := lease.Relinquish(t.Context(), r.pool, group, worker, false)
	if err != nil || len(freed) != 2 {
		t.Fatalf("relinquish: %v, %v", freed, err)
	}
	r.until("they are lost", func() bool { _, v := h.calls(); return len(v) >= 4 })
	_, lost := h.calls()
	for _, l := range lost[2:4] {
		if l.reason != lease.Lost || !slices.Contains(freed, l.Bucket) {
			t.Errorf("lost: %+v", l)
		}
	}
	go func() {
		for msg := range ch {
			msg.Ack()
		}
	}()
}

// The two hooks of a bucket never run at once: one that still sets up when the
// bucket goes is told by its context, and waited for.
func TestBucketIsNotRevokedWhileOnAssignedRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.appendTo("orders-1", 1)
	entered := make(chan struct{}, 1)
	var mu sync.Mutex
	var order []string
	say := func(s string) { mu.Lock(); defer mu.Unlock(); order = append(order, s) }
	sub := r.subscriber(drain(100*time.Millisecond), func(c *shardpub.SubscriberConfig) {
		c.OnAssigned = func(ctx context.Context, _ shardpub.Assignment) {
			entered <- struct{}{}
			<-ctx.Done()
			say(fmt.Sprintf("assigned, %v", errors.Is(context.Cause(ctx), lease.ErrShutdown)))
		}
		c.OnRevoked = func(context.Context, shardpub.Assignment, lease.Reason) {
			say(fmt.Sprintf("revoked, %d owned", r.owned()))
		}
	})
	ch := r.subscribe(sub, orders)
	answer(t, entered)
	if err := sub.Close(); err != nil {
		t.Error(err)
	}
	ends(t, "the channel", ch)
	if got := fmt.Sprint(order); got != "[assigned, true revoked, 1 owned]" || r.owned() != 0 {
		t.Errorf("%s, then %d owned", got, r.owned())
	}
}

// P-38: an outage does not become a flood of dead letters. The second event in a
// row that uses up its budget is held back, visibly; a success ends that.
func TestSecondEventGivenUpInARowIsHeldBackVisibly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.appendTo("orders-1", 3)
	r.appendTo("orders-2", 1)
	sub := r.subscriber(retry(shardpub.RetryPolicy{MaxDeliveries: 1}))
	var mu sync.Mutex
	times := map[int64]time.Time{}
	at := func(p int64) time.Time { mu.Lock(); defer mu.Unlock(); return times[p] }
	serve(r.subscribe(sub, orders), func(msg *message.Message) error {
		d, _ := shardpub.DeliveryFromContext(msg.Context())
		mu.Lock()
		times[d.Position] = time.Now()
		mu.Unlock()
		if d.Stream == "orders-1" {
			return errBoom
		}
		return nil
	})
	r.until("it backs off", func() bool { return bucketOf(sub).State == shardpub.BackingOff })
	b := bucketOf(sub)
	if n := len(r.letters()); n != 1 {
		t.Errorf("%d letters before the first back-off", n)
	}
	if len(b.InFlight) != 1 || b.InFlight[0].Stream != "orders-1" || b.InFlight[0].Position != 2 || !b.InFlight[0].Waiting {
		t.Errorf("in flight: %+v", b.InFlight)
	}
	r.reaches(4)
	if gap := at(3).Sub(at(2)); gap < time.Second {
		t.Errorf("the first back-off took %s", gap)
	}
	if gap := at(4).Sub(at(3)); gap < 2*time.Second {
		t.Errorf("the second took %s", gap)
	}
	if n := len(r.said.observed(shardpub.BackedOff)); n != 2 || len(r.letters()) != 3 {
		t.Errorf("%d back-offs, %d letters", n, len(r.letters()))
	}
	if st := bucketOf(sub).State; st == shardpub.BackingOff {
		t.Error("it backs off after a success")
	}
}
