package kiroku_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/internal/pgtest"
	"github.com/suisha-go/suisha/kiroku"
)

// store returns a database that holds an empty event store.
func store(tb testing.TB) *pgxpool.Pool {
	tb.Helper()
	return pgtest.New(tb, kiroku.Migrate)
}

// event makes an event whose data says its number.
func event(n int) kiroku.Event {
	return kiroku.Event{Type: "Counted", Data: fmt.Appendf(nil, `{"n": %d}`, n)}
}

func events(n int) []kiroku.Event {
	out := make([]kiroku.Event, n)
	for i := range out {
		out[i] = event(i + 1)
	}
	return out
}

func to(stream string, expected kiroku.ExpectedVersion, events ...kiroku.Event) kiroku.StreamAppend {
	return kiroku.StreamAppend{Stream: stream, Expected: expected, Events: events}
}

// mustAppend appends n events to a stream, whatever its version.
func mustAppend(tb testing.TB, db kiroku.DB, stream string, n int) kiroku.Appended {
	tb.Helper()
	out, err := kiroku.Append(tb.Context(), db, to(stream, kiroku.AnyVersion(), events(n)...))
	if err != nil {
		tb.Fatalf("append %d events to %q: %v", n, stream, err)
	}
	return out[0]
}

func exec(tb testing.TB, db kiroku.DB, sql string, args ...any) {
	tb.Helper()
	if _, err := db.Exec(tb.Context(), sql, args...); err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
}

func queryOne[T any](tb testing.TB, db kiroku.DB, sql string, args ...any) T {
	tb.Helper()
	var v T
	if err := db.QueryRow(tb.Context(), sql, args...).Scan(&v); err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
	return v
}

// wantError fails unless err is, or wraps, an E, and returns it.
func wantError[E error](tb testing.TB, err error) E {
	tb.Helper()
	var target E
	if !errors.As(err, &target) {
		tb.Fatalf("error %v (%T), want a %T", err, err, target)
	}
	return target
}

// contents is all that an append may change, to tell whether it did.
func contents(tb testing.TB, db kiroku.DB) string {
	tb.Helper()
	return queryOne[string](tb, db, `select concat(
		(select string_agg(s::text, ';' order by stream_id) from kiroku.streams s),
		(select string_agg(e::text, ';' order by event_id) from kiroku.events e),
		(select string_agg(l::text, ';' order by stream_id, stream_version) from kiroku.stream_events l))`)
}

func newID() uuid.UUID { return uuid.New() }

// Every statement must parse and plan against the schema that we install, and
// against the tables of the tools whose ledgers we read.
func TestEveryStatementPreparesAgainstTheSchema(t *testing.T) {
	t.Parallel()
	pool := store(t)
	exec(t, pool, `create schema pgmigrate`)
	exec(t, pool, pgmigrateTable)
	exec(t, pool, `create schema codd`)
	exec(t, pool, `create table codd.sql_migrations (name text)`)
	exec(t, pool, `create schema codd_schema`)
	exec(t, pool, `create table codd_schema.sql_migrations (name text)`)
	files, err := filepath.Glob("sql/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("no statements found: %v", err)
	}
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Conn().Prepare(t.Context(), file, string(text)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// listen returns what gives the notifications since, up to one that says "end".
func listen(t *testing.T, pool *pgxpool.Pool) (notified func() []string) {
	t.Helper()
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Release)
	exec(t, conn, `listen "kiroku.events"`)
	return func() (got []string) {
		t.Helper()
		exec(t, pool, `select pg_notify('kiroku.events', 'end')`)
		for len(got) == 0 || got[len(got)-1] != "end" {
			n, err := conn.Conn().WaitForNotification(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, n.Payload)
		}
		return got
	}
}
