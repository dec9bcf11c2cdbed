package shardpub_test

import (
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/lease"
	"github.com/suisha-go/suisha/shardpub"
)

const refuseLetters = `
	create function refuse_letter() returns trigger language plpgsql as $$ begin raise exception 'no letters today'; end $$;
	create trigger refuse before insert on kiroku.dead_letters for each row execute function refuse_letter()`

// bucketErrors counts what was reported as failed for a bucket.
func (s *sayings) bucketErrors(doing string) (n int) {
	for _, err := range s.errors() {
		var b *shardpub.BucketError
		if errors.As(err, &b) && b.Doing == doing {
			n++
		}
	}
	return n
}

// S-48, P-37: a dead letter that cannot be written is reported and tried again,
// after the event was delivered again each time; nothing dies, the other buckets
// go on, and the checkpoint waits.
func TestFailedDeadLetterWriteIsRetriedAndNothingDies(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.exec(refuseLetters)
	// No delay: what holds back the deliveries is the failure itself.
	sub := r.subscriber(shards(2), retry(shardpub.RetryPolicy{MaxDeliveries: 2, Delay: shardpub.NoDelay}))
	bad := r.streamIn(0, 2)
	good := r.streamIn(1, 2)
	r.appendTo(bad, 2)
	r.appendTo(good, 1)
	var seen diary
	serve(r.subscribe(sub, orders), func(msg *message.Message) error {
		if d := seen.note(msg); d.Stream == bad && d.Version == 1 {
			return errBoom
		}
		return nil
	})
	const failed = "write dead letter"
	r.until("it fails again and again", func() bool { return r.said.bucketErrors(failed) >= 3 })
	r.appendTo(good, 20)
	count := func(stream string) (n int) {
		for _, d := range seen.all() {
			if d.Stream == stream {
				n++
			}
		}
		return n
	}
	r.until("the other bucket goes on", func() bool { return count(good) == 21 })
	if at := r.checkpoint(0); at != 0 || len(r.letters()) != 0 {
		t.Errorf("checkpoint %d, %d letters", at, len(r.letters()))
	}
	shown := false
	for _, b := range sub.Status()[0].Buckets {
		shown = shown || b.Bucket == 0 && b.LastError != nil
	}
	if !shown {
		t.Error("Status does not show the failure")
	}
	writes, deliveries := r.said.bucketErrors(failed), count(bad)
	if deliveries < writes+1 || deliveries > 2*writes+10 {
		t.Errorf("%d deliveries for %d failed writes", deliveries, writes)
	}
	r.exec(`drop trigger refuse on kiroku.dead_letters`)
	r.until("it is written", func() bool { return len(r.letters()) == 1 })
	r.reaches(2)
	letter, all := r.letters()[0], count(bad)
	if letter.Position != 1 || letter.Attempts != all-1 { // the second event was delivered once
		t.Errorf("letter %+v after %d deliveries", letter, all-1)
	}
	if n := len(sub.Status()[0].Buckets); n != 2 {
		t.Errorf("%d buckets are held", n)
	}
}

// P-36: an attempt does not count while statements fail, and then nobody's budget
// ends a retry without delay: it must not become a hot loop.
func TestRetriesThatDoNotCountAreNoHotLoop(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.exec(refuseLetters)
	node, said := r.newNode(r.pool, func(c *shardpub.NodeConfig) { c.PollInterval = time.Hour })
	sub := r.subscriber(on(node), retry(shardpub.RetryPolicy{MaxDeliveries: 1, Delay: shardpub.NoDelay}))
	r.appendTo("orders-1", 1)
	var seen diary
	serve(r.subscribe(sub, orders), func(msg *message.Message) error {
		seen.note(msg)
		return errBoom
	})
	r.until("the letter fails", func() bool { return said.bucketErrors("write dead letter") > 0 })
	began := seen.len()
	<-time.After(2 * time.Second)
	if n := seen.len() - began; n > 20 {
		t.Errorf("%d deliveries in 2 s", n)
	}
	r.exec(`drop trigger refuse on kiroku.dead_letters`)
	r.appendTo("orders-2", 1) // its notification has the log read, which succeeds
	r.until("it is written", func() bool { return len(r.letters()) > 0 })
}

// streamIn finds a name whose stream lands in that bucket of n, by creating
// streams until one does.
func (r *rig) streamIn(bucket, n int) string {
	r.t.Helper()
	for i := range 1000 {
		name := "orders-" + string(rune('a'+bucket)) + time.Duration(i).String()
		r.exec(`insert into kiroku.streams (stream_name) values ($1) on conflict do nothing`, name)
		if ask[int](r, `select (((hashtextextended(stream_id::text, 0) % $2) + $2) % $2)::int from kiroku.streams where stream_name = $1`, name, n) == bucket {
			return name
		}
	}
	r.t.Fatal("no such stream")
	return ""
}

// S-4B, P-30: a checkpoint that cannot be written is reported; handlers go on and
// it is written later.
func TestFailedCheckpointWriteIsReportedAndHandlersGoOn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	app, change := r.granted()
	node, said := r.newNode(app)
	r.appendTo("orders-1", 1)
	ch := r.subscribe(r.subscriber(on(node)), orders)
	receive(t, ch).Ack()
	r.reaches(1)
	change("revoke update on kiroku.subscriptions from :role")
	r.appendTo("orders-1", 9)
	for range 9 {
		receive(t, ch).Ack()
	}
	r.until("it is reported", func() bool { _, ok := reported[*shardpub.CheckpointError](said); return ok })
	if at := r.checkpoint(0); at != 1 {
		t.Errorf("checkpoint %d", at)
	}
	change("grant update on kiroku.subscriptions to :role")
	r.reaches(10)
}

// S-4E: a read that fails is reported and repeated; the bucket is kept and misses
// nothing.
func TestFailedReadIsReportedAndRecovers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	app, change := r.granted()
	node, said := r.newNode(app)
	sub := r.subscriber(on(node))
	ch := r.subscribe(sub, orders)
	r.appendTo("orders-1", 1)
	first := receive(t, ch)
	first.Ack()
	change("revoke select on kiroku.events from :role")
	r.appendTo("orders-1", 3)
	r.until("it is reported", func() bool { _, ok := reported[*shardpub.ReadError](said); return ok })
	change("grant select on kiroku.events to :role")
	for want := int64(2); want <= 4; want++ {
		msg := receive(t, ch)
		if d := deliveryOf(t, msg); d.Version != want || d.Worker != deliveryOf(t, first).Worker {
			t.Errorf("version %d by %s, want %d by the same worker", d.Version, d.Worker, want)
		}
		msg.Ack()
	}
	if n := len(said.observed(shardpub.BucketRevoked)); n != 0 {
		t.Errorf("the bucket was given up %d times", n)
	}
}

// S-4C: checkpoints that cannot be loaded at a take-over are reported and asked
// for again.
func TestFailedLoadOfCheckpointsIsReportedAndRecovers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.appendTo("orders-1", 2)
	first := r.elsewhere()
	msg := receive(t, r.subscribe(first, orders))
	app, change := r.granted()
	node, said := r.newNode(app)
	ch := r.subscribe(r.subscriber(on(node)), orders)
	change("revoke select on kiroku.subscriptions from :role")
	msg.Ack()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	r.until("it is reported", func() bool { return said.bucketErrors("load checkpoints") > 0 })
	change("grant select on kiroku.subscriptions to :role")
	next := receive(t, ch)
	if d := deliveryOf(t, next); d.Position != 2 {
		t.Errorf("it begins at %d", d.Position)
	}
	next.Ack()
	r.reaches(2)
}

// L-1A, S-33: a release that fails is reported and repeated; Close waits for it.
func TestFailedReleaseIsReportedAndRepeated(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	app, change := r.granted()
	node, said := r.newNode(app)
	r.appendTo("orders-1", 1)
	sub := r.subscriber(on(node))
	receive(t, r.subscribe(sub, orders)).Ack()
	change("revoke update on keiro.keiro_subscription_shards from :role")
	closed := make(chan error, 1)
	go func() { closed <- sub.Close() }()
	r.until("it is reported", func() bool { return said.bucketErrors("release") > 0 })
	change("grant update on keiro.keiro_subscription_shards to :role")
	if err := answer(t, closed); err != nil {
		t.Error(err)
	}
	if n := r.owned(); n != 0 || r.checkpoint(0) != 1 {
		t.Errorf("%d owned, checkpoint %d", n, r.checkpoint(0))
	}
}

// S-52: what goes wrong with ownership or the session reaches OnError as its
// type, and goes by.
func TestFailuresOfTheBeatAndTheSessionReachOnErrorTyped(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	app, change := r.granted()
	node, said := r.newNode(app, func(c *shardpub.NodeConfig) {
		c.Lease = lease.Config{TTL: 30 * time.Second, RenewInterval: time.Second}
	})
	sub := r.subscriber(on(node))
	ch := r.subscribe(sub, orders)
	r.until("it owns", func() bool { return r.owned() == 1 })
	change("revoke update on suisha.workers from :role")
	r.until("the beat's failure is reported", func() bool {
		pass, ok := reported[*lease.PassError](said)
		return ok && pass.Step == lease.StepBeat && pass.Subscription == group
	})
	if _, ok := reported[*lease.PrivilegeError](said); !ok {
		t.Error("it does not say which")
	}
	r.until("Status shows it", func() bool { return sub.Status()[0].Lease.LastError != nil })
	change("grant update on suisha.workers to :role")
	r.until("it beats again", func() bool { return sub.Status()[0].Lease.LastError == nil })
	r.exec(endConnections)
	r.until("the session's loss is reported", func() bool { _, ok := reported[*shardpub.SessionError](said); return ok })
	r.appendTo("orders-1", 1)
	receive(t, ch).Ack()
	r.reaches(kiroku.Position(1))
}
