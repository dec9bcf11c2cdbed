package shardpub_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/suisha-go/suisha/lease"
	"github.com/suisha-go/suisha/shardpub"
)

// rob gives every bucket to a worker that is not there, as a claim does that
// nobody saw coming.
func (r *rig) rob() uuid.UUID {
	r.t.Helper()
	thief := uuid.New()
	r.exec(`update keiro.keiro_subscription_shards set owner_worker_id = $1, lease_expires_at = clock_timestamp() + interval '1 hour'`, thief)
	return thief
}

// fencings are the entries that losers wrote.
func (r *rig) fencings(loser, met uuid.UUID) int {
	r.t.Helper()
	return ask[int](r, `select count(*)::int from suisha.ownership_log where reason = 'fenced' and from_worker = $1 and to_worker = $2`, loser, met)
}

// A tenure that ends because a fenced write came back empty is on record, once: by
// a checkpoint, by a dead letter, and by a release. Nothing else is written.
func TestTenureThatEndsAtTheFenceIsLogged(t *testing.T) {
	t.Parallel()
	late := func(c *shardpub.NodeConfig) { // no beat comes between
		c.Lease = lease.Config{TTL: 10 * time.Minute, RenewInterval: 5 * time.Minute}
	}
	hour := func(c *shardpub.SubscriberConfig) { c.CheckpointInterval = time.Hour }
	for what, tt := range map[string]struct {
		change func(*shardpub.SubscriberConfig)
		write  func(r *rig, sub *shardpub.Subscriber, ack, nack func())
	}{
		"checkpoint":  {func(*shardpub.SubscriberConfig) {}, func(_ *rig, _ *shardpub.Subscriber, ack, _ func()) { ack() }},
		"dead letter": {retry(shardpub.RetryPolicy{MaxDeliveries: 1}), func(_ *rig, _ *shardpub.Subscriber, _, nack func()) { nack() }},
		"release": {hour, func(r *rig, sub *shardpub.Subscriber, ack, _ func()) {
			ack()
			if err := sub.Close(); err != nil {
				r.t.Error(err)
			}
		}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, late)
			r.appendTo("orders-1", 2)
			sub := r.subscriber(tt.change)
			msg := receive(t, r.subscribe(sub, orders))
			loser := deliveryOf(t, msg).Worker
			r.until("the session is known, which is a beat", func() bool { return len(r.locks()) == 1 })
			time.Sleep(500 * time.Millisecond)
			thief := r.rob()
			tt.write(r, sub, func() { msg.Ack() }, func() { msg.Nack() })
			r.until("it is on record", func() bool { return r.fencings(loser, thief) == 1 })
			time.Sleep(300 * time.Millisecond)
			if n := ask[int](r, `select count(*)::int from suisha.ownership_log where from_worker = $1`, loser); n != 1 {
				t.Errorf("%d entries of the loser", n)
			}
			if at, letters := r.checkpoint(0), len(r.letters()); at != 0 || letters != 0 {
				t.Errorf("checkpoint %d, %d dead letters", at, letters)
			}
			if owner := ask[uuid.UUID](r, `select owner_worker_id from keiro.keiro_subscription_shards`); owner != thief {
				t.Errorf("the owner is %v", owner)
			}
		})
	}
}

// A release whose answer was lost, and that finds the row free the second time, is
// no loss.
func TestReleaseWhoseAnswerWasLostIsNotFenced(t *testing.T) {
	t.Parallel()
	r := newRig(t, patientLease)
	w := &wire{}
	node, said := r.newNode(w.pool(r), patientLease)
	sub := r.subscriber(on(node))
	r.appendTo("orders-1", 1)
	receive(t, r.subscribe(sub, orders)).Ack()
	r.reaches(1)
	r.exec(`create function public.slowly() returns trigger language plpgsql as 'begin perform pg_sleep(1); return null; end'`)
	r.exec(`create trigger slowly after update on keiro.keiro_subscription_shards for each row
		when (new.owner_worker_id is null and old.owner_worker_id is not null) execute function public.slowly()`)
	closed := make(chan error, 1)
	go func() { closed <- sub.Close() }()
	r.until("the release is under way", func() bool {
		return ask[int](r, `select count(*)::int from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'`) == 1
	})
	w.cut()
	r.until("it is done, and nobody knows", func() bool { return r.owned() == 0 })
	w.mend()
	if err := answer(t, closed); err != nil {
		t.Error(err)
	}
	if n := ask[int](r, `select count(*)::int from suisha.ownership_log where reason = 'fenced'`); n != 0 {
		t.Errorf("%d entries", n)
	}
	if err := sub.DrainErrors(); errors.Is(err, lease.ErrLost) {
		t.Errorf("%v; %v", err, said.errors())
	}
}
