package shardpub_test

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/middleware"
	"github.com/suisha-go/suisha/shardpub"
)

func concurrency(n int) func(*shardpub.SubscriberConfig) {
	return func(c *shardpub.SubscriberConfig) { c.Concurrency = n }
}

// held is a stream that fails, and is not tried again within the test.
const held = "orders-0"

var heldRetry = retry(shardpub.RetryPolicy{Delay: time.Hour})

// overtaken appends three rounds to ten streams, works them with a Concurrency of
// 8 while the first event of the held stream fails, and returns once all the others
// are handled and kept in suisha.acks. The checkpoint stays at 0.
func (r *rig) overtaken(change ...func(*shardpub.SubscriberConfig)) *shardpub.Subscriber {
	r.t.Helper()
	for range 3 {
		r.appendRound(orders, 10)
	}
	sub := r.subscriber(append(change, concurrency(8), heldRetry)...)
	var seen diary
	serve(r.subscribe(sub, orders), failing(&seen, held, 1))
	r.until("27 are kept", func() bool { return r.keptBytes() == 17+27 })
	if n := seen.len(); n != 28 || r.checkpoint(0) != 0 {
		r.t.Fatalf("%d deliveries, checkpoint %d", n, r.checkpoint(0))
	}
	return sub
}

// failing handles everything but one event.
func failing(seen *diary, stream string, version int64) func(*message.Message) error {
	return func(msg *message.Message) error {
		if d := seen.note(msg); d.Stream == stream && d.Version == version {
			return errBoom
		}
		return nil
	}
}

// keptBytes is the size of what suisha.acks has of bucket 0.
func (r *rig) keptBytes() int {
	r.t.Helper()
	return ask[int](r, `select coalesce((select octet_length(settled) from suisha.acks where bucket = 0), 0)`)
}

// heldOnly fails the test unless only events of the held stream came, in order.
func (d *diary) heldOnly(t *testing.T, versions ...int64) {
	t.Helper()
	var got []int64
	for _, s := range d.all() {
		if s.Stream != held {
			t.Errorf("%s at %d came again", s.Stream, s.Position)
		}
		got = append(got, s.Version)
	}
	if !slices.Equal(got, versions) {
		t.Errorf("versions %v of %s came, want %v", got, held, versions)
	}
}

// P-39: a planned move repeats nothing, whatever was settled above the checkpoint;
// and the rows go once it has passed them.
func TestMoveWithConcurrencyRepeatsNothing(t *testing.T) {
	t.Parallel()
	for _, n := range []int{8, 1} { // to a worker that has no Concurrency of its own, too
		t.Run(fmt.Sprint("to ", n), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			if err := r.overtaken().Close(); err != nil {
				t.Fatal(err)
			}
			node, _ := r.newNode(r.pool)
			var seen diary
			serve(r.subscribe(r.subscriber(on(node), concurrency(n)), orders), handleWith(&seen))
			r.reaches(30)
			seen.heldOnly(t, 1, 2, 3)
			r.until("the rows go", func() bool { return ask[int](r, `select count(*) from suisha.acks`) == 0 })
		})
	}
}

// P-39: what a worker found settled and has not passed it hands on.
func TestSettledEventsAreHandedOn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if err := r.overtaken().Close(); err != nil {
		t.Fatal(err)
	}
	var second, third diary
	sub := r.subscriber(heldRetry)
	serve(r.subscribe(sub, orders), failing(&second, held, 2))
	r.reaches(10)
	r.until("it fails", func() bool { return second.len() == 2 })
	if err := sub.Close(); err != nil {
		t.Fatal(err)
	}
	second.heldOnly(t, 1, 2)
	serve(r.subscribe(r.subscriber(concurrency(4)), orders), handleWith(&third))
	r.reaches(30)
	third.heldOnly(t, 2, 3)
}

// P-39: a worker that is gone without a word has kept what it flushed.
func TestTakeoverSkipsWhatWasKept(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := &wire{}
	dying, _ := r.newNode(w.pool(r), quick)
	r.overtaken(on(dying))
	node, _ := r.newNode(r.pool, quick)
	var seen diary
	serve(r.subscribe(r.subscriber(on(node), concurrency(8)), orders), handleWith(&seen))
	w.cut()
	r.reaches(30)
	seen.heldOnly(t, 1, 2, 3)
	w.mend()
}

// P-39: a replay repeats everything, also one from where the checkpoint stands.
func TestReplayIgnoresWhatWasSettledAbove(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if err := r.overtaken().Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := kiroku.ResetCheckpoints(t.Context(), r.pool, 0, group); err != nil {
		t.Fatal(err)
	}
	var seen diary
	serve(r.subscribe(r.subscriber(), orders), handleWith(&seen))
	r.reaches(30)
	seen.onceInOrder(t, 30)
	if n := r.keptBytes(); n != 0 {
		t.Errorf("%d bytes are still kept", n)
	}
}

// P-31, P-39: other events in the places of those that were settled are not
// skipped, though the checkpoint is the same.
func TestSettledPlacesOfALostHistoryAreNotSkipped(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if err := r.overtaken().Close(); err != nil {
		t.Fatal(err)
	}
	r.exec(`do $$ begin
		set local kiroku.enable_hard_deletes = 'on';
		delete from kiroku.stream_events e using kiroku.stream_events a
			where a.stream_id = 0 and a.stream_version > 5 and a.event_id = e.event_id;
		delete from kiroku.events e where not exists (select from kiroku.stream_events s where s.event_id = e.event_id);
		update kiroku.streams s set stream_version =
			coalesce((select max(e.stream_version) from kiroku.stream_events e where e.stream_id = s.stream_id), 0);
	end $$`)
	r.appendRound(orders, 10)
	r.appendRound(orders, 10)
	r.appendRound(orders, 10)
	var seen diary
	serve(r.subscribe(r.subscriber(), orders), handleWith(&seen))
	r.reaches(35)
	seen.onceInOrder(t, 35)
}

// P-39: what is settled goes out with a dead letter, the letter's own event
// included.
func TestDeadLetterKeepsWhatIsSettledAboveTheCheckpoint(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := &wire{}
	dying, _ := r.newNode(w.pool(r), quick)
	node, _ := r.newNode(r.pool, quick)
	r.appendRound(orders, 3)
	sub := r.subscriber(on(dying), concurrency(4), heldRetry, func(c *shardpub.SubscriberConfig) { c.CheckpointInterval = time.Hour })
	poison := make(chan struct{})
	serve(r.subscribe(sub, orders), func(msg *message.Message) error {
		switch deliveryOf(t, msg).Stream {
		case held:
			return errBoom
		case "orders-1":
			<-poison
			return middleware.Permanent(errors.New("poison"))
		}
		return nil
	})
	r.until("one is settled", func() bool { b := sub.Status()[0].Buckets; return len(b) == 1 && b[0].Read == 3 && b[0].Queued == 2 })
	close(poison)
	r.until("the letter is written", func() bool { return len(r.letters()) == 1 })
	if n := r.keptBytes(); n != 17+2 || r.checkpoint(0) != 0 {
		t.Errorf("%d bytes are kept, checkpoint %d", n, r.checkpoint(0))
	}
	var seen diary
	serve(r.subscribe(r.subscriber(on(node)), orders), handleWith(&seen))
	w.cut()
	r.reaches(3)
	seen.heldOnly(t, 1)
	w.mend()
}

// With a Concurrency of 1 nothing is ever kept: nothing overtakes.
func TestConcurrencyOfOneKeepsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.exec(`
		create function touched() returns trigger language plpgsql as $$ begin raise exception 'suisha.acks is touched'; end $$;
		create trigger touched before insert or update or delete on suisha.acks for each row execute function touched()`)
	r.appendRound(orders, 20)
	sub := r.subscriber(shards(4), retry(shardpub.RetryPolicy{MaxDeliveries: 2, Delay: shardpub.NoDelay}))
	serve(r.subscribe(sub, orders), failing(&diary{}, held, 1))
	r.until("all is settled", func() bool { return r.covered(4) == 20 })
	if err := sub.Close(); err != nil {
		t.Fatal(err)
	}
	if errs := r.said.errors(); len(errs) != 0 || len(r.letters()) != 1 {
		t.Errorf("%d letters, %v", len(r.letters()), errs)
	}
}

// P-39, P-33: a stream that holds the checkpoint back is overtaken by so many
// events and no more; then the bucket waits for it, and goes on as before.
func TestStreamsOvertakeOneThatIsHeldUpToABound(t *testing.T) {
	t.Parallel()
	const bound, each, streams = 4096, 100, 45
	r := newRig(t)
	for range each {
		r.appendRound(orders, streams)
	}
	sub := r.subscriber(concurrency(8), func(c *shardpub.SubscriberConfig) { c.PrefetchCount, c.BatchSize = 10_000, 1000 })
	var seen diary
	var out gauge
	var slow atomic.Bool
	var handed atomic.Int64
	release := make(chan struct{})
	serve(r.subscribe(sub, orders), func(msg *message.Message) error {
		handed.Add(1)
		if d := seen.note(msg); d.Stream == held && d.Version == 1 {
			<-release
		} else if slow.Load() {
			out.enter()
			defer out.leave()
			time.Sleep(time.Millisecond)
		}
		return nil
	})
	r.until("it is overtaken", func() bool { return handed.Load() >= bound })
	time.Sleep(500 * time.Millisecond)
	if n := handed.Load(); n > bound+8 {
		t.Errorf("%d went out, want %d and those in flight", n, bound)
	}
	r.until("they are kept", func() bool { return r.keptBytes() >= 17+bound })
	if n := r.keptBytes(); n > 17+2*(bound+8) || r.checkpoint(0) != 0 {
		t.Errorf("%d bytes are kept, checkpoint %d", n, r.checkpoint(0))
	}
	slow.Store(true)
	close(release)
	r.until("all are handled", func() bool { return handed.Load() >= each*streams })
	r.reaches(each * streams)
	seen.onceInOrder(t, each*streams)
	if most := out.most.Load(); most < 2 {
		t.Errorf("at most %d at once afterwards", most)
	}
}
