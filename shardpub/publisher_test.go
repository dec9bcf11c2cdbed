package shardpub_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/internal/pgtest"
	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/shardpub"
)

func storePool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	return pgtest.New(t, kiroku.Migrate)
}

func newPublisher(t *testing.T, db shardpub.Executor, cfg shardpub.PublisherConfig) *shardpub.Publisher {
	t.Helper()
	pub, err := shardpub.NewPublisher(db, cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pub.Close(); err != nil {
			t.Error(err)
		}
	})
	return pub
}

func keyed(id, payload, key string) *message.Message {
	return newMessage(id, payload, map[string]string{shardpub.MetadataKey: key})
}

func expecting(id, key, version string) *message.Message {
	msg := keyed(id, "x", key)
	msg.Metadata.Set(shardpub.MetadataExpectedVersion, version)
	return msg
}

// messagesOf reads a category back as messages, in the order of the log.
func messagesOf(t *testing.T, db kiroku.DB, category string) []*message.Message {
	t.Helper()
	events, err := kiroku.ReadCategory(t.Context(), db, category, 0, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	var out []*message.Message
	for _, e := range events {
		out = append(out, unmarshal(t, e))
	}
	return out
}

func uuidsOf(msgs []*message.Message) string {
	var ids []string
	for _, msg := range msgs {
		ids = append(ids, msg.UUID)
	}
	return strings.Join(ids, " ")
}

func headOf(t *testing.T, db kiroku.DB) kiroku.Position {
	t.Helper()
	head, err := kiroku.Head(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	return head
}

// eventually waits for a condition of the server.
func eventually(t *testing.T, pool *pgxpool.Pool, what, query string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		var holds bool
		if err := pool.QueryRow(ctx, query).Scan(&holds); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if holds {
			return
		}
		<-tick.C
	}
}

const (
	aWriterWaits   = `select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')`
	noWriterWaits  = `select not exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')`
	lockTheWholeOf = `select from kiroku.streams where stream_id = 0 for update`
)

// holdTheLog locks what every append needs, until release is called.
func holdTheLog(t *testing.T, pool *pgxpool.Pool) (release func()) {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), lockTheWholeOf); err != nil {
		t.Fatal(err)
	}
	release = sync.OnceFunc(func() {
		if err := tx.Rollback(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(release)
	return release
}

// Case 60: whatever the bytes, they come back, and JSON is JSON in the store.
func TestPublishedPayloadsComeBack(t *testing.T) {
	t.Parallel()
	pool := storePool(t)
	for codec, payloads := range map[string]shardpub.PayloadCodec{"json": shardpub.PayloadJSON{}, "exact": shardpub.PayloadExact{}} {
		pub := newPublisher(t, pool, shardpub.PublisherConfig{Payload: payloads})
		for name, odd := range oddPayloads() {
			if codec == "exact" && strings.HasPrefix(name, "big") {
				continue // ten megabytes once more
			}
			topic := codec + "." + strings.ReplaceAll(name, "-", ".")
			if err := pub.Publish(topic, message.NewMessage(name, odd.payload)); err != nil {
				t.Errorf("%s: %v", topic, err)
				continue
			}
			got := messagesOf(t, pool, topic)[0]
			same := bytes.Equal(got.Payload, odd.payload)
			if odd.asJSON && codec == "json" {
				same = equalJSON(t, got.Payload, odd.payload)
			}
			if !same || got.UUID != name {
				t.Errorf("%s: %.100q came back as %q %.100q", topic, odd.payload, got.UUID, got.Payload)
			}
		}
	}
}

func equalJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y any
	if err := errors.Join(json.Unmarshal(a, &x), json.Unmarshal(b, &y)); err != nil {
		t.Error(err)
	}
	return reflect.DeepEqual(x, y)
}

func TestPublishedJSONCanBeQueried(t *testing.T) {
	t.Parallel()
	pool := storePool(t)
	pub := newPublisher(t, pool, shardpub.PublisherConfig{})
	if err := pub.Publish("orders", newMessage("m1", `{"b":1, "a":2}`, map[string]string{"tenant": "blue"})); err != nil {
		t.Fatal(err)
	}
	var b, tenant string
	err := pool.QueryRow(t.Context(), `select data->>'b', metadata->>'tenant' from kiroku.events`).Scan(&b, &tenant)
	if err != nil || b != "1" || tenant != "blue" {
		t.Errorf("b %q, tenant %q, %v", b, tenant, err)
	}
}

func TestPublishedMetadataComesBack(t *testing.T) {
	t.Parallel()
	pool := storePool(t)
	pub := newPublisher(t, pool, shardpub.PublisherConfig{})
	sent := newMessage("\xff", "x", map[string]string{
		"name": "OrderPlaced", "correlation_id": someUUID, "nul": "a\x00b", "bad": "\xff", "": "empty", "quote": `"\`, "html": "<&>",
	})
	if err := pub.Publish("orders", sent); err != nil {
		t.Fatal(err)
	}
	if got := messagesOf(t, pool, "orders")[0]; !got.Equals(sent) {
		t.Errorf("%q %q came back as %q %q", sent.UUID, sent.Metadata, got.UUID, got.Metadata)
	}
	var column string
	if err := pool.QueryRow(t.Context(), `select correlation_id::text from kiroku.events`).Scan(&column); err != nil || column != someUUID {
		t.Errorf("correlation_id %q, %v", column, err)
	}
}

// noSQL is a database that must not be asked.
type noSQL struct{ t *testing.T }

func (n noSQL) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	n.t.Error("Exec was called")
	return pgconn.CommandTag{}, errors.ErrUnsupported
}

func (n noSQL) Query(context.Context, string, ...any) (pgx.Rows, error) {
	n.t.Error("Query was called")
	return nil, errors.ErrUnsupported
}

func (n noSQL) QueryRow(context.Context, string, ...any) pgx.Row {
	n.t.Error("QueryRow was called")
	return nil
}

func (n noSQL) Begin(context.Context) (pgx.Tx, error) {
	n.t.Error("Begin was called")
	return nil, errors.ErrUnsupported
}

// Case 61.
func TestTopicsAreRefusedBeforeAnySQL(t *testing.T) {
	t.Parallel()
	pub := newPublisher(t, noSQL{t}, shardpub.PublisherConfig{})
	for _, topic := range []string{"orders-v2", "-", "", shardpub.AllStreams, strings.Repeat("x", 600), strings.Repeat("é", 257), "a\x00", "\xff"} {
		for _, msgs := range [][]*message.Message{{message.NewMessage("m1", nil)}, nil} {
			err := pub.Publish(topic, msgs...)
			var typed *shardpub.TopicError
			if !errors.As(err, &typed) || typed.Topic != topic || len(err.Error()) > 300 {
				t.Errorf("%.20q: %v, want a short *TopicError", topic, err)
			}
		}
	}
}

func TestTopicsAreIsolated(t *testing.T) {
	t.Parallel()
	pool := storePool(t)
	pub := newPublisher(t, pool, shardpub.PublisherConfig{})
	topics := []string{"a/b", "a", "é", "a b", "a.b", "%", "'", `"`, ",", "$x", strings.Repeat("x", kiroku.MaxStreamName)}
	for _, topic := range topics {
		if err := pub.Publish(topic, message.NewMessage(topic, nil)); err != nil {
			t.Errorf("%.20q: %v", topic, err)
		}
	}
	for _, topic := range topics {
		if got := uuidsOf(messagesOf(t, pool, topic)); got != topic {
			t.Errorf("%.20q holds %.20q", topic, got)
		}
	}
}

func TestBadMessagesAreRefusedBeforeAnySQL(t *testing.T) {
	t.Parallel()
	errKey, errID := errors.New("no key"), errors.New("no id")
	is := func(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }
	key := func(err error) bool { var typed *shardpub.KeyError; return errors.As(err, &typed) }
	version := func(err error) bool { var typed *shardpub.ExpectedVersionError; return errors.As(err, &typed) }
	reserved := func(err error) bool {
		var typed *shardpub.MetadataError
		var of *shardpub.MessageError
		return errors.As(err, &typed) && errors.As(err, &of) && of.UUID == "m1"
	}
	for name, c := range map[string]struct {
		cfg  shardpub.PublisherConfig
		msgs []*message.Message
		want func(error) bool
	}{
		"long key":       {msgs: []*message.Message{keyed("m1", "x", strings.Repeat("k", 600))}, want: key},
		"odd key":        {msgs: []*message.Message{keyed("m1", "x", "\x00")}, want: key},
		"key func fails": {cfg: shardpub.PublisherConfig{Key: func(string, *message.Message) (string, error) { return "", errKey }}, msgs: []*message.Message{newMessage("m1", "x", nil)}, want: is(errKey)},
		"id func fails":  {cfg: shardpub.PublisherConfig{EventID: func(string, *message.Message) (uuid.UUID, error) { return uuid.Nil, errID }}, msgs: []*message.Message{newMessage("m1", "x", nil)}, want: is(errID)},
		"no uuid":        {cfg: shardpub.PublisherConfig{EventID: shardpub.IdempotentEventID}, msgs: []*message.Message{newMessage("", "x", nil)}, want: is(shardpub.ErrNoMessageUUID)},
		"reserved":       {msgs: []*message.Message{keyed("m0", "x", ""), newMessage("m1", "x", map[string]string{"_suisha_x": ""})}, want: reserved},
		"no version":     {msgs: []*message.Message{expecting("m1", "a", "soon")}, want: version},
		"odd spelling":   {msgs: []*message.Message{expecting("m1", "a", "+1")}, want: version},
		"negative":       {msgs: []*message.Message{expecting("m1", "a", "-1")}, want: version},
		"two versions":   {msgs: []*message.Message{expecting("m1", "a", "1"), expecting("m2", "a", "2")}, want: version},
		"no type": {cfg: shardpub.PublisherConfig{Marshaler: marshalerFunc(func() kiroku.Event {
			return kiroku.Event{Data: json.RawMessage(`{}`)}
		})}, msgs: []*message.Message{newMessage("m1", "x", nil)}, want: is(kiroku.ErrInvalid)},
		"no JSON": {cfg: shardpub.PublisherConfig{Marshaler: marshalerFunc(func() kiroku.Event {
			return kiroku.Event{Type: "t", Data: json.RawMessage(`"\u0000"`)}
		})}, msgs: []*message.Message{newMessage("m1", "x", nil)}, want: is(kiroku.ErrInvalid)},
	} {
		if err := newPublisher(t, noSQL{t}, c.cfg).Publish("orders", c.msgs...); !c.want(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type marshalerFunc func() kiroku.Event

func (f marshalerFunc) Marshal(string, *message.Message) (kiroku.Event, error) { return f(), nil }

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

func TestPublishHonoursTheDeadline(t *testing.T) {
	t.Parallel()
	pool := storePool(t)
	pub := newPublisher(t, pool, shardpub.PublisherConfig{})
	release := holdTheLog(t, pool)
	if err := pool.Ping(t.Context()); err != nil { // the connection is not part of the measurement
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	err := pub.Publish("orders", message.NewMessageWithContext(ctx, "m1", nil))
	if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took > 2*time.Second {
		t.Errorf("%v after %v, want DeadlineExceeded after 50 ms", err, took)
	}
	eventually(t, pool, "the append is cancelled on the server", noWriterWaits)
	release()
	if head := headOf(t, pool); head != 0 {
		t.Errorf("head %d: something was appended", head)
	}
}

func TestPublishIsCancelledOnTheServer(t *testing.T) {
	t.Parallel()
	pool := storePool(t)
	pub := newPublisher(t, pool, shardpub.PublisherConfig{OnPublished: func(context.Context, string, []kiroku.Appended) {
		t.Error("OnPublished after a failure")
	}})
	release := holdTheLog(t, pool)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- pub.Publish("orders", message.NewMessageWithContext(ctx, "m1", nil)) }()
	eventually(t, pool, "the append waits", aWriterWaits)
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want Canceled", err)
	}
	eventually(t, pool, "the append is cancelled on the server", noWriterWaits)
	release()
	if head := headOf(t, pool); head != 0 {
		t.Errorf("head %d: something was appended", head)
	}
}

func TestPublishWithACancelledContextSendsNothing(t *testing.T) {
	t.Parallel()
	pool := storePool(t)
	pub := newPublisher(t, pool, shardpub.PublisherConfig{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := pub.Publish("orders", message.NewMessageWithContext(ctx, "m1", nil)); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want Canceled", err)
	}
	if head := headOf(t, pool); head != 0 {
		t.Errorf("head %d: something was appended", head)
	}
}

func TestLockTimeoutBoundsTheWait(t *testing.T) {
	t.Parallel()
	pool := storePool(t)
	pub := newPublisher(t, pool, shardpub.PublisherConfig{LockTimeout: 50 * time.Millisecond})
	release := holdTheLog(t, pool)
	var typed *kiroku.TransientError
	if err := pub.Publish("orders", newMessage("m1", "x", nil)); !errors.As(err, &typed) {
		t.Errorf("%v, want a *TransientError", err)
	}
	release()
	if err := pub.Publish("orders", newMessage("m2", "x", nil)); err != nil {
		t.Error(err)
	}
	if got := uuidsOf(messagesOf(t, pool, "orders")); got != "m2" {
		t.Errorf("orders holds %s", got)
	}
}

func TestLockTimeoutInATransactionLeavesItUsable(t *testing.T) {
	t.Parallel()
	pool := storePool(t)
	release := holdTheLog(t, pool)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), `set local lock_timeout = '7s'`); err != nil {
		t.Fatal(err)
	}
	pub := newPublisher(t, tx, shardpub.PublisherConfig{LockTimeout: 50 * time.Millisecond})
	var typed *kiroku.TransientError
	if err := pub.Publish("orders", newMessage("m1", "x", nil)); !errors.As(err, &typed) {
		t.Errorf("%v, want a *TransientError", err)
	}
	release()
	for _, when := range []string{"after a timeout", "after a success"} {
		var setting string
		if err := tx.QueryRow(t.Context(), `show lock_timeout`).Scan(&setting); err != nil || setting != "7s" {
			t.Errorf("%s: lock_timeout %q, %v", when, setting, err)
		}
		if err := pub.Publish("orders", newMessage("m2", "x", nil)); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := uuidsOf(messagesOf(t, pool, "orders")); got != "m2 m2" {
		t.Errorf("orders holds %s", got)
	}
}

func TestPublishIsPartOfTheCallersTransaction(t *testing.T) {
	t.Parallel()
	pool := storePool(t)
	for id, end := range map[string]func(pgx.Tx) error{
		"rolled": func(tx pgx.Tx) error { return tx.Rollback(t.Context()) },
		"kept":   func(tx pgx.Tx) error { return tx.Commit(t.Context()) },
	} {
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		err = newPublisher(t, tx, shardpub.PublisherConfig{}).Publish("orders", newMessage(id, "x", nil))
		if err := errors.Join(err, end(tx)); err != nil {
			t.Fatal(err)
		}
	}
	if got := uuidsOf(messagesOf(t, pool, "orders")); got != "kept" {
		t.Errorf("orders holds %s", got)
	}
}

func TestPublishOnAConnection(t *testing.T) {
	t.Parallel()
	pool := storePool(t)
	conn, err := pgx.Connect(t.Context(), pgtest.DSN(pool))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if err := newPublisher(t, conn, shardpub.PublisherConfig{LockTimeout: time.Second}).Publish("orders", newMessage("m1", "x", nil)); err != nil {
		t.Fatal(err)
	}
	if got := uuidsOf(messagesOf(t, pool, "orders")); got != "m1" {
		t.Errorf("orders holds %s", got)
	}
}

// Case 64: one call cannot, but two transactions with two calls each can.
func TestDeadlockOfTransactionsIsTypedAndRetryable(t *testing.T) {
	t.Parallel()
	pool := storePool(t)
	setUp := newPublisher(t, pool, shardpub.PublisherConfig{})
	if err := setUp.Publish("orders", keyed("m0", "x", "a"), keyed("m0", "x", "b")); err != nil {
		t.Fatal(err)
	}
	publish := func(tx pgx.Tx, key string) error {
		return newPublisher(t, tx, shardpub.PublisherConfig{}).Publish("orders", keyed("m1", "x", key))
	}
	first, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	second, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := publish(first, "a"); err != nil {
		t.Fatal(err)
	}
	result := make(chan error, 1)
	go func() { // takes b, then waits for the log that the first transaction has
		err := publish(second, "b")
		result <- errors.Join(err, second.Rollback(t.Context()))
	}()
	eventually(t, pool, "the second transaction waits", aWriterWaits)
	err = publish(first, "b")
	err = errors.Join(err, first.Rollback(t.Context()), <-result)
	var typed *kiroku.TransientError
	if !errors.As(err, &typed) {
		t.Errorf("%v, want a *TransientError from one of the two", err)
	}
	if err := setUp.Publish("orders", keyed("m2", "x", "b"), keyed("m2", "x", "a")); err != nil {
		t.Errorf("again: %v", err)
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

func TestPublishOfNothingTouchesNothing(t *testing.T) {
	t.Parallel()
	if err := newPublisher(t, noSQL{t}, shardpub.PublisherConfig{}).Publish("orders"); err != nil {
		t.Error(err)
	}
}

func TestPublisherConfigErrorsComeAllAtOnce(t *testing.T) {
	t.Parallel()
	_, err := shardpub.NewPublisher(nil, shardpub.PublisherConfig{
		Marshaler: shardpub.DefaultMarshaler{}, Payload: shardpub.PayloadExact{}, LockTimeout: time.Microsecond,
	}, nil)
	for _, field := range []string{"db", "Payload", "LockTimeout"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%v does not name %s", err, field)
		}
	}
	var typed *shardpub.ConfigError
	if !errors.As(err, &typed) {
		t.Errorf("%v, want *ConfigError", err)
	}
	if err := (shardpub.PublisherConfig{LockTimeout: -time.Second}).Validate(); err == nil {
		t.Error("a negative LockTimeout passed")
	}
	if err := (shardpub.PublisherConfig{}).Validate(); err != nil {
		t.Errorf("the zero value: %v", err)
	}
}
