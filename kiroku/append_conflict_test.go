package kiroku_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/suisha-go/suisha/kiroku"
)

func TestAppendHonoursEachExpectation(t *testing.T) {
	t.Parallel()
	pool := store(t)
	setUp := func() {
		exec(t, pool, `truncate kiroku.stream_events, kiroku.events, kiroku.dead_letters`)
		exec(t, pool, `delete from kiroku.streams where stream_id <> 0`)
		exec(t, pool, `update kiroku.streams set stream_version = 0 where stream_id = 0`)
		mustAppend(t, pool, "there", 2)
		mustAppend(t, pool, "deleted", 3)
		exec(t, pool, `update kiroku.streams set deleted_at = now() where stream_name = 'deleted'`)
	}
	exec(t, pool, fmt.Sprintf(`alter database %s set kiroku.enable_hard_deletes = 'on'`, databaseOf(t, pool)))
	pool.Reset()
	for _, c := range []struct {
		stream   string
		expected kiroku.ExpectedVersion
		want     error
	}{
		{"there", kiroku.AnyVersion(), nil},
		{"there", kiroku.NoStream(), &kiroku.StreamExistsError{Stream: "there", Actual: 2}},
		{"there", kiroku.StreamExists(), nil},
		{"there", kiroku.ExactVersion(2), nil},
		{"there", kiroku.ExactVersion(1), &kiroku.VersionConflictError{Stream: "there", Expected: kiroku.ExactVersion(1), Actual: 2}},
		{"there", kiroku.ExactVersion(3), &kiroku.VersionConflictError{Stream: "there", Expected: kiroku.ExactVersion(3), Actual: 2}},
		{"new", kiroku.AnyVersion(), nil},
		{"new", kiroku.NoStream(), nil},
		{"new", kiroku.StreamExists(), &kiroku.StreamNotFoundError{Stream: "new", Expected: kiroku.StreamExists()}},
		{"new", kiroku.ExactVersion(0), &kiroku.StreamNotFoundError{Stream: "new", Expected: kiroku.ExactVersion(0)}},
		{"deleted", kiroku.AnyVersion(), &kiroku.StreamNotFoundError{Stream: "deleted", Deleted: true, Actual: 3}},
		{"deleted", kiroku.NoStream(), &kiroku.StreamExistsError{Stream: "deleted", Deleted: true, Actual: 3}},
		{"deleted", kiroku.StreamExists(), &kiroku.StreamNotFoundError{Stream: "deleted", Expected: kiroku.StreamExists(), Deleted: true, Actual: 3}},
		{"deleted", kiroku.ExactVersion(3), &kiroku.StreamNotFoundError{Stream: "deleted", Expected: kiroku.ExactVersion(3), Deleted: true, Actual: 3}},
	} {
		setUp()
		before := contents(t, pool)
		got, err := kiroku.Append(t.Context(), pool, to(c.stream, c.expected, event(1)))
		if c.want == nil {
			if err != nil || len(got) != 1 {
				t.Errorf("%s, %v: %v", c.stream, c.expected, err)
			}
			continue
		}
		if err == nil || err.Error() != c.want.Error() || !errors.Is(err, kiroku.ErrConflict) {
			t.Errorf("%s, %v: error %v, want %v", c.stream, c.expected, err, c.want)
		}
		if joined := err.(interface{ Unwrap() []error }).Unwrap(); !reflect.DeepEqual(joined, []error{c.want}) {
			t.Errorf("%s, %v: errors %#v, want %#v", c.stream, c.expected, joined, c.want)
		}
		if contents(t, pool) != before {
			t.Errorf("%s, %v: something was written", c.stream, c.expected)
		}
	}
}

func databaseOf(tb testing.TB, db kiroku.DB) string {
	tb.Helper()
	return queryOne[string](tb, db, `select quote_ident(current_database())`)
}

func TestOneFailedExpectationKeepsAllStreamsAsTheyAre(t *testing.T) {
	t.Parallel()
	pool := store(t)
	mustAppend(t, pool, "a", 1)
	mustAppend(t, pool, "b", 2)
	before := contents(t, pool)
	_, err := kiroku.Append(t.Context(), pool,
		to("new", kiroku.NoStream(), event(1)),
		to("a", kiroku.ExactVersion(1), event(1)),
		to("b", kiroku.ExactVersion(1), event(1)),
		to("c", kiroku.StreamExists(), event(1)))
	conflict := wantError[*kiroku.VersionConflictError](t, err)
	if conflict.Stream != "b" || conflict.Actual != 2 {
		t.Errorf("%+v", conflict)
	}
	if missing := wantError[*kiroku.StreamNotFoundError](t, err); missing.Stream != "c" {
		t.Errorf("%+v", missing)
	}
	if contents(t, pool) != before {
		t.Error("something was written")
	}
}

func TestAConflictLeavesTheCallersTransactionAlive(t *testing.T) {
	t.Parallel()
	pool := store(t)
	mustAppend(t, pool, "a", 1)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	mustAppend(t, tx, "b", 1)
	_, err = kiroku.Append(t.Context(), tx, to("a", kiroku.NoStream(), event(1)), to("c", kiroku.AnyVersion(), event(1)))
	wantError[*kiroku.StreamExistsError](t, err)
	got := mustAppend(t, tx, "a", 1)
	if got.Version != 2 || got.Position != 3 {
		t.Errorf("%+v", got)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantDenseLog(t, pool)
	if head, err := kiroku.Head(t.Context(), pool); err != nil || head != 3 {
		t.Errorf("head %d, %v", head, err)
	}
}

// A stream that somebody else creates is invisible to a statement that began
// before; the next one sees it, also in a transaction.
func TestALostCreationIsTriedAgainInATransaction(t *testing.T) {
	t.Parallel()
	pool := store(t)
	for _, c := range []struct {
		expected kiroku.ExpectedVersion
		version  int64
	}{{kiroku.AnyVersion(), 2}, {kiroku.NoStream(), 0}} {
		stream := "fresh " + c.expected.String()
		first, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		mustAppend(t, first, stream, 1)
		done := make(chan error, 1)
		go func() {
			done <- pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
				got, err := kiroku.Append(t.Context(), tx, to(stream, c.expected, event(1)))
				if err == nil && got[0].Version != c.version {
					t.Errorf("%v: %+v", c.expected, got[0])
				}
				return err
			})
		}()
		eventually(t, func() bool {
			return queryOne[bool](t, pool, `select exists (select from pg_stat_activity where wait_event_type = 'Lock'
				and datname = current_database())`)
		})
		if err := first.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		err = <-done
		if c.version > 0 && err != nil {
			t.Errorf("%v: %v", c.expected, err)
		}
		if c.version == 0 {
			if lost := wantError[*kiroku.StreamExistsError](t, err); lost.Actual != 1 {
				t.Errorf("%+v", lost)
			}
		}
	}
	wantDenseLog(t, pool)
}

// Of two new streams one is created and the other lost: the statement takes
// itself back. In a transaction that aborts it; outside it is tried again.
func TestAHalfLostCreationWritesNothing(t *testing.T) {
	t.Parallel()
	pool := store(t)
	for _, inside := range []bool{false, true} {
		lost := fmt.Sprintf("z-%v", inside)
		first, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		mustAppend(t, first, lost, 1)
		done := make(chan error, 1)
		appends := []kiroku.StreamAppend{
			to(fmt.Sprintf("a-%v", inside), kiroku.AnyVersion(), event(1)), to(lost, kiroku.AnyVersion(), event(1)),
		}
		go func() {
			if inside {
				done <- pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
					_, err := kiroku.Append(t.Context(), tx, appends...)
					return err
				})
				return
			}
			_, err := kiroku.Append(t.Context(), pool, appends...)
			done <- err
		}()
		eventually(t, func() bool {
			return queryOne[bool](t, pool, `select exists (select from pg_stat_activity where wait_event_type = 'Lock'
				and datname = current_database())`)
		})
		if err := first.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		err = <-done
		if !inside && err != nil {
			t.Error(err)
		}
		if inside {
			wantError[*kiroku.TransientError](t, err)
			wantError[*pgconn.PgError](t, err)
		}
	}
	wantDenseLog(t, pool)
	if n := queryOne[int](t, pool, `select count(*) from kiroku.streams`); n != 4 { // row 0, z-false, a-false, z-true
		t.Errorf("%d streams", n)
	}
}

// In a transaction of another isolation level a lost race is the server's error.
func TestALostRaceInAStrictTransactionIsTransient(t *testing.T) {
	t.Parallel()
	pool := store(t)
	mustAppend(t, pool, "a", 1)
	tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	exec(t, tx, `select 1`)
	mustAppend(t, pool, "a", 1)
	_, err = kiroku.Append(t.Context(), tx, to("a", kiroku.AnyVersion(), event(1)))
	wantError[*kiroku.TransientError](t, err)
	if pg := wantError[*pgconn.PgError](t, err); pg.Code != "40001" {
		t.Errorf("SQLSTATE %s", pg.Code)
	}
}

func TestALockTimeoutIsTransient(t *testing.T) {
	t.Parallel()
	pool := store(t)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	mustAppend(t, tx, "a", 1)
	err = pgx.BeginFunc(t.Context(), pool, func(other pgx.Tx) error {
		exec(t, other, `set local lock_timeout = '50ms'`)
		_, err := kiroku.Append(t.Context(), other, to("b", kiroku.AnyVersion(), event(1)))
		return err
	})
	wantError[*kiroku.TransientError](t, err)
}
