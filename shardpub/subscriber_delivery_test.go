package shardpub_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/suisha-go/suisha/internal/outcome"
	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/middleware"
	"github.com/suisha-go/suisha/shardpub"
)

var errBoom = errors.New("boom")

type valueKey struct{}

// S-41, case 58: a delivery says all about its event, in the context and for
// stock code in the metadata; the second delivery too, which differs from the
// first in its attempt alone.
func TestEachDeliverySaysAllAboutItsEvent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	pub := newPublisher(t, r.pool, shardpub.PublisherConfig{})
	msg := newMessage("the uuid", `{"n": 1}`, map[string]string{shardpub.MetadataKey: "7", "name": "Placed", "trace": "t"})
	if err := pub.Publish(orders, msg); err != nil {
		t.Fatal(err)
	}
	sub := r.subscriber(shards(4))
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), valueKey{}, "inherited"))
	defer cancel()
	ch, err := sub.Subscribe(ctx, orders)
	if err != nil {
		t.Fatal(err)
	}
	var first shardpub.Delivery
	for attempt := range 2 {
		got := receive(t, ch)
		d := deliveryOf(t, got)
		if v := got.Context().Value(valueKey{}); v != "inherited" {
			t.Errorf("attempt %d: the context's value is %v", attempt, v)
		}
		if got.UUID != msg.UUID || string(got.Payload) != `{"n": 1}` || got.Metadata["trace"] != "t" || got.Metadata["name"] != "Placed" {
			t.Errorf("attempt %d: %s %s %v", attempt, got.UUID, got.Payload, got.Metadata)
		}
		if d.Attempt != attempt {
			t.Errorf("attempt %d says %d", attempt, d.Attempt)
		}
		for key, want := range map[string]string{
			shardpub.MetadataSubscription: group, shardpub.MetadataShards: "4", shardpub.MetadataStream: "orders-7",
			shardpub.MetadataBucket: strconv.Itoa(d.Bucket), shardpub.MetadataAttempt: strconv.Itoa(attempt),
			shardpub.MetadataPosition: "1", shardpub.MetadataVersion: "1", shardpub.MetadataEventType: "Placed",
			shardpub.MetadataEventID: d.EventID.String(), shardpub.MetadataWorker: d.Worker.String(),
			shardpub.MetadataRecordedAt: d.RecordedAt.Format(time.RFC3339Nano),
		} {
			if got.Metadata[key] != want {
				t.Errorf("attempt %d: metadata %s = %q, want %q", attempt, key, got.Metadata[key], want)
			}
		}
		if attempt == 0 {
			first = d
			got.Nack()
			continue
		}
		d.Attempt = 0
		if !reflect.DeepEqual(d, first) {
			t.Errorf("the second delivery is\n%+v, the first was\n%+v", d, first)
		}
		got.Ack()
		<-got.Context().Done() // it ends once the delivery is settled
	}
	if v := first.Worker.Version(); v != 4 { // S-10
		t.Errorf("the worker's id is a UUIDv%d", v)
	}
}

// S-42, S-46: done goes on, a retry brings the same event again after its delay
// and holds up its bucket, a dead letter is recorded and passed.
func TestVerdictsOfAHandlerAreObeyed(t *testing.T) {
	t.Parallel()
	const delay = 150 * time.Millisecond
	r := newRig(t)
	r.appendTo("orders-1", 3)
	r.appendTo("orders-2", 1) // same bucket: it waits too
	var seen diary
	var at []time.Time
	sub := r.subscriber()
	done := serve(r.subscribe(sub, orders), func(msg *message.Message) error {
		at = append(at, time.Now()) // one at a time
		switch d := seen.note(msg); {
		case d.Stream == "orders-1" && d.Version == 1 && d.Attempt == 0:
			return middleware.RetryAfter(errBoom, delay)
		case d.Stream == "orders-1" && d.Version == 2:
			return middleware.Permanent(errBoom)
		}
		return nil
	})
	r.reaches(4)
	if err := sub.Close(); err != nil {
		t.Fatal(err)
	}
	<-done
	var order []string
	for _, d := range seen.all() {
		order = append(order, fmt.Sprintf("%s@%d/%d", d.Stream, d.Version, d.Attempt))
	}
	if got := fmt.Sprint(order); got != "[orders-1@1/0 orders-1@1/1 orders-1@2/0 orders-1@3/0 orders-2@1/0]" {
		t.Errorf("deliveries %s", got)
	}
	if gap := at[1].Sub(at[0]); gap < delay {
		t.Errorf("the retry came after %s", gap)
	}
	if letters := r.letters(); len(letters) != 1 || letters[0].Summary != "poison: boom" || letters[0].Position != 2 || letters[0].Attempts != 1 {
		t.Errorf("letters %+v", letters)
	}
}

// S-46, S-47, T-18: the budget counts deliveries in all; one counter tells the
// handler, the metadata and the dead letter; the next event begins at 0.
func TestRetryBlocksTheBucketAndCountsTotalDeliveries(t *testing.T) {
	t.Parallel()
	for _, budget := range []int{1, 2, 5} {
		r := newRig(t)
		r.appendTo("orders-1", 1)
		r.appendTo("orders-2", 1)
		var seen diary
		policy := shardpub.RetryPolicy{MaxDeliveries: budget, Delay: time.Millisecond}
		if budget == 5 {
			policy.MaxDeliveries = 0 // keiro's default
		}
		sub := r.subscriber(retry(policy))
		done := serve(r.subscribe(sub, orders), func(msg *message.Message) error {
			if seen.note(msg).Stream == "orders-1" {
				return errBoom
			}
			return nil
		})
		r.reaches(2)
		if err := sub.Close(); err != nil {
			t.Fatal(err)
		}
		<-done
		all := seen.all()
		if len(all) != budget+1 || all[budget].Stream != "orders-2" || all[budget].Attempt != 0 {
			t.Fatalf("budget %d: deliveries %+v", budget, all)
		}
		for i, d := range all[:budget] {
			if d.Stream != "orders-1" || d.Attempt != i {
				t.Errorf("budget %d: delivery %d is %s attempt %d", budget, i, d.Stream, d.Attempt)
			}
		}
		letters := r.letters()
		want := fmt.Sprintf("max retry attempts exceeded (%d)", budget)
		if len(letters) != 1 || letters[0].Attempts != budget || letters[0].Summary != want {
			t.Errorf("budget %d: letters %+v", budget, letters)
		}
	}
}

// S-47: attempts are counted per tenure; a new owner begins at 0.
func TestNewOwnerBeginsToCountAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.appendTo("orders-1", 1)
	sub := r.subscriber(retry(shardpub.RetryPolicy{MaxDeliveries: 3, Delay: time.Millisecond}))
	ch := r.subscribe(sub, orders)
	receive(t, ch).Nack()
	second := receive(t, ch)
	if d := deliveryOf(t, second); d.Attempt != 1 {
		t.Errorf("attempt %d", d.Attempt)
	}
	second.Nack()
	if err := sub.Close(); err != nil {
		t.Fatal(err)
	}
	next := receive(t, r.subscribe(r.elsewhere(), orders))
	if d := deliveryOf(t, next); d.Attempt != 0 {
		t.Errorf("the new owner begins at %d", d.Attempt)
	}
	next.Ack()
}

// A handler that takes longer than HandlerTimeout learns why, and has failed.
func TestHandlerTimeoutIsAFailedAttemptWithItsCause(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.appendTo("orders-1", 1)
	causes := make(chan error, 8)
	sub := r.subscriber(retry(shardpub.RetryPolicy{MaxDeliveries: 2, Delay: time.Millisecond}), func(c *shardpub.SubscriberConfig) {
		c.HandlerTimeout = 30 * time.Millisecond
	})
	serve(r.subscribe(sub, orders), func(msg *message.Message) error {
		<-msg.Context().Done()
		causes <- context.Cause(msg.Context())
		return msg.Context().Err()
	})
	for range 2 {
		if err := answer(t, causes); !errors.Is(err, shardpub.ErrHandlerTimeout) {
			t.Errorf("cause %v", err)
		}
	}
	r.reaches(1)
	if letters := r.letters(); len(letters) != 1 || letters[0].Attempts != 2 {
		t.Errorf("letters %+v", letters)
	}
}

// gauge counts what runs at once.
type gauge struct{ now, most atomic.Int64 }

func (g *gauge) enter() {
	n := g.now.Add(1)
	for most := g.most.Load(); n > most && !g.most.CompareAndSwap(most, n); most = g.most.Load() {
	}
}

func (g *gauge) leave() { g.now.Add(-1) }

// P-33: MaxInFlight bounds the subscription in this process, whatever its buckets
// and lanes.
func TestMaxInFlightBoundsWhatIsOut(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for range 2 {
		r.appendRound(orders, 32)
	}
	sub := r.subscriber(shards(8), func(c *shardpub.SubscriberConfig) { c.MaxInFlight, c.Concurrency = 3, 2 })
	var out gauge
	var seen diary
	serve(r.subscribe(sub, orders), func(msg *message.Message) error {
		out.enter()
		defer out.leave()
		seen.note(msg)
		<-time.After(5 * time.Millisecond)
		return nil
	})
	r.until("all are handled", func() bool { return seen.len() >= 64 })
	if err := sub.Close(); err != nil {
		t.Fatal(err)
	}
	seen.onceInOrder(t, 64)
	if most := out.most.Load(); most != 3 {
		t.Errorf("at most %d were out at once, want 3", most)
	}
}

// P-33: Concurrency 4 runs four streams of one bucket at once and never two
// events of one stream.
func TestConcurrencyRunsStreamsOfABucketAtOnceEachInOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for range 5 {
		r.appendRound(orders, 8)
	}
	sub := r.subscriber(func(c *shardpub.SubscriberConfig) { c.Concurrency = 4 })
	var out gauge
	var seen diary
	var mu sync.Mutex
	byStream := map[string]*gauge{}
	four := make(chan struct{})
	fill := sync.OnceFunc(func() { close(four) })
	serve(r.subscribe(sub, orders), func(msg *message.Message) error {
		d := seen.note(msg)
		mu.Lock()
		if byStream[d.Stream] == nil {
			byStream[d.Stream] = &gauge{}
		}
		mine := byStream[d.Stream]
		mu.Unlock()
		mine.enter()
		defer mine.leave()
		out.enter()
		defer out.leave()
		if out.now.Load() == 4 {
			fill()
		}
		select {
		case <-four: // the first four wait for each other
		case <-msg.Context().Done():
		}
		return nil
	})
	r.until("all are handled", func() bool { return seen.len() >= 40 })
	if err := sub.Close(); err != nil {
		t.Fatal(err)
	}
	seen.onceInOrder(t, 40)
	if most := out.most.Load(); most != 4 {
		t.Errorf("at most %d at once, want 4", most)
	}
	for stream, g := range byStream {
		if most := g.most.Load(); most != 1 {
			t.Errorf("%s: %d at once", stream, most)
		}
	}
}

// P-33: an event larger than all that may wait in memory passes, alone and at its
// place.
func TestEventLargerThanThePrefetchPassesAtItsPlace(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.appendTo("orders-1", 20)
	huge := make([]byte, 0, 3<<20+2)
	huge = append(huge, '"')
	for len(huge) < 3<<20 {
		huge = append(huge, 'x')
	}
	huge = append(huge, '"')
	out, err := kiroku.Append(t.Context(), r.pool, kiroku.StreamAppend{Stream: "orders-1", Events: []kiroku.Event{{Type: "Huge", Data: huge}}})
	if err != nil {
		t.Fatal(err)
	}
	r.appendTo("orders-1", 20)
	sub := r.subscriber(func(c *shardpub.SubscriberConfig) { c.PrefetchBytes = 64 << 10 })
	ch := r.subscribe(sub, orders)
	for i := range int64(41) {
		msg := receive(t, ch)
		d := deliveryOf(t, msg)
		if d.Version != i+1 {
			t.Fatalf("version %d came at place %d", d.Version, i+1)
		}
		if kiroku.Position(d.Position) == out[0].Position && len(msg.Payload) != len(huge) {
			t.Errorf("the huge event has %d bytes of %d", len(msg.Payload), len(huge))
		}
		msg.Ack()
	}
	r.reaches(41)
}

// S-49: a dead letter's row in kiroku's spelling, with what the handler last said
// beside it, whatever bytes that has.
func TestDeadLettersHaveKirokusKeysWhateverTheErrorSays(t *testing.T) {
	t.Parallel()
	const odd = "a\x00b \xff \\u0000 \\\\u0000 \"q\" \u2028"
	const stored = "a\ufffdb \ufffd \\u0000 \\\\u0000 \"q\" \u2028"
	r := newRig(t)
	out, err := kiroku.Append(t.Context(), r.pool, kiroku.StreamAppend{Stream: "orders-1", Events: []kiroku.Event{
		{Type: "Exhausted", Data: []byte(`{}`)}, {Type: "Poison", Data: []byte(`{}`)}, {Type: "Other", Data: []byte(`{}`)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	sub := r.subscriber(retry(shardpub.RetryPolicy{MaxDeliveries: 2, Delay: time.Millisecond}))
	serve(r.subscribe(sub, orders), func(msg *message.Message) error {
		d, _ := shardpub.DeliveryFromContext(msg.Context())
		switch d.EventType {
		case "Poison":
			return middleware.Permanent(errors.New(odd))
		case "Other":
			slot, _ := outcome.From(msg.Context())
			return slot.Mark(func(o *outcome.Outcome) {
				o.Permanent, o.Reason = true, kiroku.Reason{Kind: kiroku.Other, Detail: odd}
			})
		}
		return errors.New(odd)
	})
	r.reaches(3)
	letters := r.letters()
	if len(letters) != 3 {
		t.Fatalf("%d letters", len(letters))
	}
	want := []struct {
		summary  string
		attempts int
		reason   map[string]any
	}{
		{"max retry attempts exceeded (2)", 2, map[string]any{
			"kind": "max_attempts_exceeded", "attempts": 2.0, "deliveries": 2.0, "last_error": stored, "error_type": "*errors.errorString",
		}},
		{"poison: " + stored, 1, map[string]any{
			"kind": "poison", "detail": stored, "deliveries": 1.0, "last_error": stored, "error_type": "*errors.errorString",
		}},
		{stored, 1, map[string]any{"kind": "other", "summary": stored, "detail": nil, "deliveries": 1.0}},
	}
	for i, w := range want {
		l := letters[i]
		got := ask[map[string]any](r, `select reason from kiroku.dead_letters where dead_letter_id = $1`, l.ID)
		if !reflect.DeepEqual(got, w.reason) {
			t.Errorf("%d: reason\n%q, want\n%q", i, got, w.reason)
		}
		if l.Summary != w.summary || l.Attempts != w.attempts || l.Member != 0 || l.Position != kiroku.Position(i+1) || l.EventID != out[0].EventIDs[i] {
			t.Errorf("%d: %+v, want %q after %d", i, l, w.summary, w.attempts)
		}
	}
}
