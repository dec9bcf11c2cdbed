package shardpub_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/shardpub"
)

func TestKeysAreStreamsAndKeepTheirOrder(t *testing.T) {
	t.Parallel()
	pool := storePool(t)
	var got []kiroku.Appended
	pub := newPublisher(t, pool, shardpub.PublisherConfig{
		OnPublished: func(_ context.Context, topic string, r []kiroku.Appended) {
			if topic != "orders" {
				t.Errorf("topic %q", topic)
			}
			got = r
		},
	})
	err := pub.Publish("orders", keyed("m1", "1", "b"), keyed("m2", "2", "a-x"), keyed("m3", "3", "b"), newMessage("m4", "4", nil), keyed("m5", "5", "b"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]struct {
		version int64
		uuids   string
	}{"orders": {1, "m4"}, "orders-a-x": {1, "m2"}, "orders-b": {3, "m1 m3 m5"}}
	if len(got) != len(want) {
		t.Fatalf("OnPublished got %+v", got)
	}
	for _, a := range got {
		events, err := kiroku.ReadStream(t.Context(), pool, a.Stream, 0, 10)
		if err != nil {
			t.Fatal(err)
		}
		var msgs []*message.Message
		for _, e := range events {
			msgs = append(msgs, unmarshal(t, e))
		}
		if w := want[a.Stream]; a.Version != w.version || uuidsOf(msgs) != w.uuids || len(a.EventIDs) != len(msgs) {
			t.Errorf("%+v holds %s, want %+v", a, uuidsOf(msgs), w)
		}
	}
}

func TestKeyFuncHasTheLastWord(t *testing.T) {
	t.Parallel()
	pool := storePool(t)
	pub := newPublisher(t, pool, shardpub.PublisherConfig{Key: func(_ string, msg *message.Message) (string, error) {
		return msg.Metadata.Get("customer"), nil
	}})
	a := keyed("m1", "x", "ignored")
	a.Metadata.Set("customer", "7")
	if err := pub.Publish("orders", a, keyed("m2", "x", "ignored")); err != nil {
		t.Fatal(err)
	}
	var streams []string
	if err := pool.QueryRow(t.Context(), `select array_agg(stream_name order by stream_id) from kiroku.streams where stream_id > 0`).Scan(&streams); err != nil {
		t.Fatal(err)
	}
	if strings.Join(streams, " ") != "orders orders-7" {
		t.Errorf("streams %v", streams)
	}
}

func TestExpectedVersions(t *testing.T) {
	t.Parallel()
	pool := storePool(t)
	pub := newPublisher(t, pool, shardpub.PublisherConfig{})
	if err := pub.Publish("orders", keyed("m1", "x", "old"), keyed("m2", "x", "old")); err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		key, version string
		ok           bool
	}{
		{"old", "any", true},
		{"old", "stream_exists", true},
		{"old", "6", true},
		{"old", "6", false},
		{"old", "no_stream", false},
		{"new", "stream_exists", false},
		{"new", "0", false},
		{"new", "no_stream", true},
		{"new", "no_stream", false},
		{"new", "2", true},
	} {
		before := headOf(t, pool)
		// The other stream shows that a failure takes back the whole call.
		err := pub.Publish("orders", keyed("m", "x", "other"), expecting("m", c.key, c.version), keyed("m", "x", c.key))
		switch after := headOf(t, pool); {
		case c.ok && (err != nil || after != before+3):
			t.Errorf("%d: %s at %s: %v, head %d to %d", i, c.key, c.version, err, before, after)
		case !c.ok && (!errors.Is(err, kiroku.ErrConflict) || after != before):
			t.Errorf("%d: %s at %s: %v, head %d to %d, want a conflict", i, c.key, c.version, err, before, after)
		}
	}
}

func TestIdempotentPublishAppendsOnce(t *testing.T) {
	t.Parallel()
	pool := storePool(t)
	pub := newPublisher(t, pool, shardpub.PublisherConfig{EventID: shardpub.IdempotentEventID})
	if err := pub.Publish("orders", newMessage("m1", "x", nil)); err != nil {
		t.Fatal(err)
	}
	err := pub.Publish("orders", newMessage("m2", "x", nil), newMessage("m1", "x", nil))
	var typed *kiroku.DuplicateEventError
	if want, _ := shardpub.IdempotentEventID("orders", newMessage("m1", "", nil)); !errors.As(err, &typed) || typed.EventID != want {
		t.Errorf("%v, want a *DuplicateEventError with %v", err, want)
	}
	if err := pub.Publish("invoices", newMessage("m1", "x", nil)); err != nil {
		t.Errorf("the same UUID on another topic: %v", err)
	}
	if got := uuidsOf(messagesOf(t, pool, "orders")); got != "m1" {
		t.Errorf("orders holds %s", got)
	}
}

func TestSameUUIDIsAppendedTwiceByDefault(t *testing.T) {
	t.Parallel()
	pool := storePool(t)
	pub := newPublisher(t, pool, shardpub.PublisherConfig{})
	for range 2 {
		if err := pub.Publish("orders", newMessage("1", "x", nil), newMessage("1", "x", nil)); err != nil {
			t.Fatal(err)
		}
	}
	if got := uuidsOf(messagesOf(t, pool, "orders")); got != "1 1 1 1" {
		t.Errorf("orders holds %s", got)
	}
}

func TestConcurrentPublishersLoseNothing(t *testing.T) {
	t.Parallel()
	pool := storePool(t)
	pub := newPublisher(t, pool, shardpub.PublisherConfig{})
	const writers, calls, streams = 8, 25, 4
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for c := range calls {
				var msgs []*message.Message
				for s := range streams { // each writer in another order
					key := strconv.Itoa((s + w) % streams)
					msgs = append(msgs, keyed(fmt.Sprintf("%d/%d", w, c), "x", key))
				}
				if err := pub.Publish("orders", msgs...); err != nil {
					t.Errorf("writer %d, call %d: %v", w, c, err)
				}
			}
		})
	}
	wg.Wait()
	for s := range streams {
		events, err := kiroku.ReadStream(t.Context(), pool, "orders-"+strconv.Itoa(s), 0, 10_000)
		if err != nil || len(events) != writers*calls {
			t.Fatalf("stream %d: %d events, %v", s, len(events), err)
		}
		next := map[string]int{}
		for _, e := range events {
			w, c, _ := strings.Cut(unmarshal(t, e).UUID, "/")
			if c != strconv.Itoa(next[w]) {
				t.Fatalf("stream %d: call %s of writer %s, want %d", s, c, w, next[w])
			}
			next[w]++
		}
	}
}

func TestCloseWaitsAndIsFinal(t *testing.T) {
	t.Parallel()
	pool := storePool(t)
	pub := newPublisher(t, pool, shardpub.PublisherConfig{})
	release := holdTheLog(t, pool)
	published := make(chan error, 1)
	go func() { published <- pub.Publish("orders", newMessage("m1", "x", nil)) }()
	eventually(t, pool, "the append waits", aWriterWaits)
	closed := make(chan error, 16)
	for range cap(closed) {
		go func() { closed <- pub.Close() }()
	}
	for !errors.Is(pub.Publish("orders"), shardpub.ErrPublisherClosed) {
		if t.Context().Err() != nil {
			t.Fatal("Publish after Close")
		}
	}
	select {
	case <-closed:
		t.Error("Close did not wait for the call")
	default:
	}
	release()
	if err := <-published; err != nil {
		t.Error(err)
	}
	for range cap(closed) {
		if err := <-closed; err != nil {
			t.Error(err)
		}
	}
	if err := errors.Join(pub.Close(), pool.Ping(t.Context())); err != nil {
		t.Errorf("closing again, or the pool: %v", err)
	}
}
