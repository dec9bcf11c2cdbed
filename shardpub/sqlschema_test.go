package shardpub_test

import (
	"context"
	stdsql "database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/suisha-go/suisha/internal/pgtest"
	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/shardpub"
)

func openSQL(t *testing.T, pool *pgxpool.Pool) *stdsql.DB {
	t.Helper()
	cfg, err := pgx.ParseConfig(pgtest.DSN(pool))
	if err != nil {
		t.Fatal(err)
	}
	db := stdlib.OpenDB(*cfg)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func beginSQL(t *testing.T, db *stdsql.DB) *stdsql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

// sqlPublish publishes with watermill-sql's own publisher.
func sqlPublish(db sql.ContextExecutor, cfg shardpub.SQLSchemaConfig, topic string, msgs ...*message.Message) error {
	pub, err := sql.NewPublisher(db, sql.PublisherConfig{SchemaAdapter: shardpub.NewSQLSchema(cfg)}, nil)
	if err != nil {
		return err
	}
	return errors.Join(pub.Publish(topic, msgs...), pub.Close())
}

func TestSQLPublisherIsPartOfTheCallersTransaction(t *testing.T) {
	t.Parallel()
	pool := storePool(t)
	db := openSQL(t, pool)
	for id, end := range map[string]func(*stdsql.Tx) error{"rolled": (*stdsql.Tx).Rollback, "kept": (*stdsql.Tx).Commit} {
		tx := beginSQL(t, db)
		err := sqlPublish(tx, shardpub.SQLSchemaConfig{}, "orders", keyed(id, "x", "a"), keyed(id, "x", "b"))
		if err := errors.Join(err, end(tx)); err != nil {
			t.Fatal(err)
		}
	}
	if got := uuidsOf(messagesOf(t, pool, "orders")); got != "kept kept" {
		t.Errorf("orders holds %s", got)
	}
}

func TestSQLPublisherOnTheDatabaseItself(t *testing.T) {
	t.Parallel()
	pool := storePool(t)
	pub, err := sql.NewPublisher(openSQL(t, pool), sql.PublisherConfig{
		SchemaAdapter: shardpub.NewSQLSchema(shardpub.SQLSchemaConfig{}), AutoInitializeSchema: true, // nothing to do
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(pub.Publish("orders", newMessage("m1", "x", nil)), pub.Publish("orders")); err != nil {
		t.Fatal(err)
	}
	if got := uuidsOf(messagesOf(t, pool, "orders")); got != "m1" {
		t.Errorf("orders holds %s", got)
	}
}

// row is all that the store says of an event, but ids and times.
type row struct {
	Stream                                   string
	Position, Version, OriginalVersion       int64
	Type, Data, Metadata                     string
	Causation, Correlation                   *string
	HomeRows, StreamVersion, HeadAtThatStore int64
}

const rowsOfTheStore = `
select s.stream_name, a.stream_version, h.stream_version, a.original_stream_version,
    e.event_type, e.data::text, e.metadata::text, e.causation_id::text, e.correlation_id::text,
    (select count(*) from kiroku.stream_events x where x.event_id = e.event_id), s.stream_version,
    (select stream_version from kiroku.streams where stream_id = 0)
from kiroku.stream_events a
join kiroku.events e using (event_id)
join kiroku.stream_events h on h.event_id = a.event_id and h.stream_id = a.original_stream_id and h.original_stream_id = h.stream_id
join kiroku.streams s on s.stream_id = a.original_stream_id
where a.stream_id = 0 and e.created_at between now() - interval '1 minute' and clock_timestamp()
order by a.stream_version`

func rowsOf(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	rows, err := pool.Query(t.Context(), rowsOfTheStore)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Both ways in leave the same rows.
func TestSQLPublisherWritesWhatAppendWrites(t *testing.T) {
	t.Parallel()
	calls := [][]*message.Message{
		{keyed("m1", "1", "b"), keyed("m2", "\xff", "a"), keyed("m3", `{"x":1}`, "b")},
		{newMessage("m4", "4", map[string]string{"name": "Named", "correlation_id": someUUID, "causation_id": someUUID, "k": "\x00"})},
		{keyed("m5", "5", "c"), keyed("m6", "6", "b"), keyed("m7", "7", "a"), expecting("m8", "c", "no_stream")},
		{expecting("m9", "b", "3"), expecting("m10", "a", "stream_exists"), expecting("m11", "d", "any")},
	}
	direct, adapter := storePool(t), storePool(t)
	pub, db := newPublisher(t, direct, shardpub.PublisherConfig{}), openSQL(t, adapter)
	for i, msgs := range calls {
		if err := errors.Join(pub.Publish("orders", msgs...), sqlPublish(db, shardpub.SQLSchemaConfig{}, "orders", msgs...)); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
	}
	if a, b := rowsOf(t, direct), rowsOf(t, adapter); a != b || strings.Count(a, "{") < 11 {
		t.Errorf("append wrote %s\nthe adapter %s", a, b)
	}
}

func TestSQLPublisherRaisesOnConflict(t *testing.T) {
	t.Parallel()
	pool := storePool(t)
	db := openSQL(t, pool)
	pub := newPublisher(t, pool, shardpub.PublisherConfig{})
	if err := pub.Publish("orders", keyed("m1", "x", "old"), keyed("m2", "x", "old"), keyed("m3", "x", "deleted")); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), `update kiroku.streams set deleted_at = now() where stream_name = 'orders-deleted'`); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ key, version, says string }{
		{"old", "1", `stream orders-old is at version 2, expected 1`},
		{"old", "no_stream", `stream orders-old is at version 2, expected no_stream`},
		{"new", "stream_exists", `stream orders-new does not exist, expected stream_exists`},
		{"new", "0", `stream orders-new does not exist, expected 0`},
		{"deleted", "any", `stream orders-deleted is deleted`},
		{"deleted", "no_stream", `stream orders-deleted is deleted`},
	} {
		before := rowsOf(t, pool)
		err := sqlPublish(db, shardpub.SQLSchemaConfig{}, "orders", keyed("m", "x", "other"), expecting("m", c.key, c.version))
		if !shardpub.IsSQLConflict(err) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s at %s: %v, want a conflict that says %q", c.key, c.version, err, c.says)
		}
		if after := rowsOf(t, pool); after != before {
			t.Errorf("%s at %s: something was appended", c.key, c.version)
		}
	}
	err := sqlPublish(db, shardpub.SQLSchemaConfig{EventID: shardpub.IdempotentEventID}, "orders", newMessage("m", "x", nil), newMessage("m", "x", nil))
	if err == nil || shardpub.IsSQLConflict(err) {
		t.Errorf("%v, want an error for the repeated id that is no conflict", err)
	}
}

func TestSQLPublisherRaisesWithoutTheLog(t *testing.T) {
	t.Parallel()
	pool := storePool(t)
	_, err := pool.Exec(t.Context(), `
		set session_replication_role = replica;
		delete from kiroku.streams where stream_id = 0;
		set session_replication_role = origin`)
	if err != nil {
		t.Fatal(err)
	}
	if err := sqlPublish(openSQL(t, pool), shardpub.SQLSchemaConfig{}, "orders", newMessage("m", "x", nil)); err == nil {
		t.Error("the message is gone without an error")
	}
}

func TestSQLPublisherRefusesBeforeAnySQL(t *testing.T) {
	t.Parallel()
	adapter := shardpub.NewSQLSchema(shardpub.SQLSchemaConfig{})
	var topic *shardpub.TopicError
	if _, err := adapter.InsertQuery("orders-v2", nil); !errors.As(err, &topic) {
		t.Errorf("%v, want a *TopicError", err)
	}
	var bad *shardpub.MessageError
	if _, err := adapter.InsertQuery("orders", message.Messages{newMessage("m1", "x", map[string]string{"_suisha_x": ""})}); !errors.As(err, &bad) {
		t.Errorf("%v, want a *MessageError", err)
	}
	var config *shardpub.ConfigError
	both := shardpub.NewSQLSchema(shardpub.SQLSchemaConfig{Marshaler: shardpub.DefaultMarshaler{}, Payload: shardpub.PayloadExact{}})
	if _, err := both.InsertQuery("orders", nil); !errors.As(err, &config) {
		t.Errorf("%v, want a *ConfigError", err)
	}
	for _, e := range []kiroku.Event{
		{Data: json.RawMessage(`{}`)},
		{Type: "\x00", Data: json.RawMessage(`{}`)},
		{Type: "t"},
		{Type: "t", Data: json.RawMessage(`"\u0000"`)},
		{Type: "t", Data: json.RawMessage(`{}`), Metadata: json.RawMessage(`{`)},
	} {
		odd := shardpub.NewSQLSchema(shardpub.SQLSchemaConfig{Marshaler: marshalerFunc(func() kiroku.Event { return e })})
		if _, err := odd.InsertQuery("orders", message.Messages{newMessage("m1", "x", nil)}); !errors.Is(err, kiroku.ErrInvalid) {
			t.Errorf("%+v: %v, want ErrInvalid", e, err)
		}
	}
}

func TestSQLSubscriberFailsWithAReason(t *testing.T) {
	t.Parallel()
	adapter := shardpub.NewSQLSchema(shardpub.SQLSchemaConfig{})
	query := adapter.SelectQuery("orders", "group", nil)
	_, err := openSQL(t, storePool(t)).ExecContext(t.Context(), query.Query, query.Args...)
	if err == nil || !strings.Contains(err.Error(), "use shardpub.NewSubscriber") {
		t.Errorf("%v, want a message that says what to use", err)
	}
	if _, err := adapter.UnmarshalMessage(nil); !errors.Is(err, shardpub.ErrSQLSubscriber) {
		t.Errorf("%v, want ErrSQLSubscriber", err)
	}
	if queries := adapter.SchemaInitializingQueries("orders"); len(queries) != 0 {
		t.Errorf("the adapter wants to run %v", queries)
	}
	if level := adapter.SubscribeIsolationLevel(); level != stdsql.LevelReadCommitted {
		t.Errorf("isolation level %v", level)
	}
}

func TestPublishStatementsFitTheSchema(t *testing.T) {
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), pgtest.DSN(storePool(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	files, err := filepath.Glob("sql/publish_*.sql")
	if err != nil || len(files) != 4 {
		t.Fatalf("%v, %v", files, err)
	}
	for i, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Prepare(t.Context(), fmt.Sprint("s", i), string(text)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}
