package shardpub_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/shardpub"
)

// write appends one event as another writer would.
func (r *rig) write(stream, kind, data, metadata string) kiroku.Appended {
	r.t.Helper()
	e := kiroku.Event{Type: kind, Data: json.RawMessage(data)}
	if metadata != "" {
		e.Metadata = json.RawMessage(metadata)
	}
	out, err := kiroku.Append(r.t.Context(), r.pool, kiroku.StreamAppend{Stream: stream, Events: []kiroku.Event{e}})
	if err != nil {
		r.t.Fatal(err)
	}
	return out[0]
}

// tear runs statements that the store's guards forbid.
func (r *rig) tear(sql string, args ...any) {
	r.t.Helper()
	err := pgx.BeginFunc(r.t.Context(), r.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(r.t.Context(), `set local session_replication_role = replica`); err != nil {
			return err
		}
		_, err := tx.Exec(r.t.Context(), sql, args...)
		return err
	})
	if err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
}

// versions reads n messages and acks them.
func versions(t *testing.T, ch <-chan *message.Message, n int) (out []int64) {
	t.Helper()
	for range n {
		msg := receive(t, ch)
		out = append(out, deliveryOf(t, msg).Version)
		msg.Ack()
	}
	return out
}

// Case 47: an event that cannot be made into a message is parked, not retried for
// ever, and its bucket goes on; odd metadata alone is no reason.
func TestUndecodableEventIsParkedAndItsBucketGoesOn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.write("orders-1", "Good", `{}`, `{"tags": ["a", 1], "nested": {"n": 1e3}, "none": null, "ok": true}`)
	bad := r.write("orders-1", "Bad", `"???"`, `{"_watermill_message_uuid": "m", "_suisha_payload": "base64"}`)
	r.write("orders-1", "Good", `{}`, `[1, 2]`)
	ch := r.subscribe(r.subscriber(), orders)
	first := receive(t, ch)
	if m := first.Metadata; m["tags"] != `["a",1]` || m["nested"] != `{"n":1000}` || m["none"] != "" || m["ok"] != "true" {
		t.Errorf("metadata %v", m)
	}
	first.Ack()
	if got := versions(t, ch, 1); got[0] != 3 {
		t.Errorf("then version %d", got[0])
	}
	r.reaches(3)
	letters := r.letters()
	if len(letters) != 1 || letters[0].EventID != bad.EventIDs[0] || letters[0].Attempts != 1 || !strings.HasPrefix(letters[0].Summary, "invalid payload: ") {
		t.Fatalf("letters %+v", letters)
	}
	if kind := ask[string](r, `select reason->>'kind' from kiroku.dead_letters`); kind != "invalid_payload" {
		t.Errorf("kind %s", kind)
	}
}

// S-06, S-41: every event of the category from the first, whatever its type; of
// other categories none; checkpoints pass what is not ours.
func TestSubscriptionReadsItsWholeCategoryAndNothingElse(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, stream := range []string{"orders", "orders-1", "ordersx-1", "orders2-1", "Orders-1", "order-1", "orders-a-b", "bills-orders-1", ""} {
		r.write(stream, "Any", `1`, "")
		r.write(stream, "Other type", `[]`, "")
	}
	sub := r.subscriber()
	ch := r.subscribe(sub, orders)
	var got []string
	for range 6 {
		msg := receive(t, ch)
		d := deliveryOf(t, msg)
		got = append(got, fmt.Sprintf("%s %s", d.Stream, d.EventType))
		msg.Ack()
	}
	want := []string{
		"orders Any", "orders Other type", "orders-1 Any", "orders-1 Other type", "orders-a-b Any", "orders-a-b Other type",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	r.reaches(headOf(t, r.pool))
	if row := ask[string](r, `select concat_ws(' ', stream_name, consumer_group_size) from kiroku.subscriptions`); row != "$all 1" {
		t.Errorf("what upstream keeps for itself is %q", row)
	}
	if filter := ask[string](r, `select filter from suisha.subscriptions`); filter != "" {
		t.Errorf("filter %q", filter)
	}
	if err := sub.Close(); err != nil {
		t.Fatal(err)
	}
	all := r.subscriber(func(c *shardpub.SubscriberConfig) { c.ConsumerGroup = "everything" })
	everything := r.subscribe(all, shardpub.AllStreams)
	for want := int64(1); want <= 18; want++ {
		msg := receive(t, everything)
		if d := deliveryOf(t, msg); d.Position != want || d.Category != shardpub.AllStreams {
			t.Errorf("position %d of %q, want %d", d.Position, d.Category, want)
		}
		msg.Ack()
	}
}

// A stream that is deleted softly, or truncated, is hidden from its own readers;
// the log goes on to hold it, and so does who reads the category.
func TestSoftlyDeletedAndTruncatedStreamsStillFlow(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.appendTo("orders-1", 3)
	r.appendTo("orders-2", 2)
	r.exec(`update kiroku.streams set deleted_at = now() where stream_name = 'orders-1'`)
	r.exec(`update kiroku.streams set truncate_before = 99 where stream_name = 'orders-2'`)
	got := versions(t, r.subscribe(r.subscriber(), orders), 5)
	if !slices.Equal(got, []int64{1, 2, 3, 1, 2}) {
		t.Errorf("versions %v", got)
	}
}

const hardDelete = `
	delete from kiroku.stream_events where event_id in (select event_id from kiroku.stream_events where stream_id = 0 and stream_version = any ($1::bigint[]));`

// P-27: events that are gone for good are passed, in front of the reader and
// where a whole stream went.
func TestHardDeletedEventsArePassed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.appendTo("orders-1", 4)
	r.appendTo("orders-2", 2)
	r.appendTo("orders-1", 1)
	r.tear(hardDelete, []int64{2, 5, 6})
	r.tear(`delete from kiroku.events e where not exists (select from kiroku.stream_events s where s.event_id = e.event_id)`)
	r.tear(`delete from kiroku.streams where stream_name = 'orders-2'`)
	got := versions(t, r.subscribe(r.subscriber(), orders), 4)
	if !slices.Equal(got, []int64{1, 3, 4, 5}) {
		t.Errorf("versions %v", got)
	}
	r.reaches(7)
	if n := len(r.letters()); n != 0 {
		t.Errorf("%d dead letters", n)
	}
}

// P-27: an event, or its stream, that is missing while its key is there is not
// passed: the page is read again until it is whole, or until the key is gone too.
func TestEventThatIsMissingForAWhileIsNotPassed(t *testing.T) {
	t.Parallel()
	for what, table := range map[string]string{"its event": "events", "its stream": "streams"} {
		for _, comes := range []bool{true, false} {
			r := newRig(t)
			r.appendTo("orders-1", 1)
			missing := r.write("orders-2", "Torn", `{}`, "")
			r.appendTo("orders-1", 1)
			which := `event_id = '` + missing.EventIDs[0].String() + `'`
			columns := `event_id, event_type, data`
			if table == "streams" {
				which, columns = fmt.Sprintf(`stream_id = %d`, missing.StreamID), `stream_id, stream_name, stream_version`
			}
			r.exec(`create table saved as select ` + columns + ` from kiroku.` + table + ` where ` + which)
			r.tear(`delete from kiroku.` + table + ` where ` + which)
			ch := r.subscribe(r.subscriber(), orders)
			r.until("it is reported", func() bool { _, ok := reported[*shardpub.ReadError](r.said); return ok })
			want := []int64{1, 2}
			if comes {
				r.tear(`insert into kiroku.` + table + ` (` + columns + `) select * from saved`)
				want = []int64{1, 1, 2}
			} else {
				r.tear(hardDelete, []int64{2})
			}
			if got := versions(t, ch, len(want)); !slices.Equal(got, want) {
				t.Errorf("%s comes back: %v: versions %v, want %v", what, comes, got, want)
			}
			r.reaches(3)
		}
	}
}

// P-37: an event that is deleted for good while a handler has it cannot be a dead
// letter; it counts as settled.
func TestEventDeletedWhileItIsOutIsSettled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.appendTo("orders-1", 2)
	ch := r.subscribe(r.subscriber(retry(shardpub.RetryPolicy{MaxDeliveries: 1})), orders)
	msg := receive(t, ch)
	r.tear(hardDelete, []int64{1})
	r.tear(`delete from kiroku.events where event_id = $1`, deliveryOf(t, msg).EventID)
	msg.Nack()
	if got := versions(t, ch, 1); got[0] != 2 {
		t.Errorf("then version %d", got[0])
	}
	r.reaches(2)
	if n := len(r.letters()); n != 0 {
		t.Errorf("%d dead letters", n)
	}
	if n := r.said.bucketErrors("write dead letter"); n != 0 {
		t.Errorf("%d errors", n)
	}
}

// The next pages are on their way while a handler works: it never waits for one where
// there is something to read.
func TestPagesAreReadOnWhileAHandlerWorks(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.appendTo("orders-1", 400) // a page has a hundred keys and more
	sub := r.subscriber(shards(1), func(c *shardpub.SubscriberConfig) { c.BatchSize, c.PrefetchCount = 5, 300 })
	msg := receive(t, r.subscribe(sub, "orders"))
	r.until("as many wait as may", func() bool { return queued(sub) == 300 })
	msg.Ack()
}
