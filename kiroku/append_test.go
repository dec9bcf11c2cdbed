package kiroku_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/suisha-go/suisha/kiroku"
)

func TestAppendNumbersEventsInTheirStreamsAndInTheLog(t *testing.T) {
	t.Parallel()
	pool := store(t)
	got, err := kiroku.Append(t.Context(), pool,
		to("orders-2", kiroku.NoStream(), events(2)...),
		to("orders-1", kiroku.AnyVersion(), events(3)...))
	if err != nil {
		t.Fatal(err)
	}
	if got[0].Stream != "orders-2" || got[0].Version != 2 || got[0].Position != 2 || len(got[0].EventIDs) != 2 {
		t.Errorf("first: %+v", got[0])
	}
	if got[1].Stream != "orders-1" || got[1].Version != 3 || got[1].Position != 5 || len(got[1].EventIDs) != 3 {
		t.Errorf("second: %+v", got[1])
	}
	if got[1].StreamID != 2 || got[0].StreamID != 3 {
		t.Errorf("ids %d and %d, want 3 and 2: streams are created by name", got[0].StreamID, got[1].StreamID)
	}
	all, err := kiroku.ReadAll(t.Context(), pool, 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range all {
		if e.Position != kiroku.Position(i+1) {
			t.Errorf("event %d at position %d", i, e.Position)
		}
	}
	again := mustAppend(t, pool, "orders-1", 1)
	if again.Version != 4 || again.Position != 6 || again.StreamID != got[1].StreamID {
		t.Errorf("again: %+v", again)
	}
}

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
		if joined := err.(interface{ Unwrap() []error }).Unwrap(); !reflect.DeepEqual(joined, []error{c.want}) { //nolint:errorlint // the join itself
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

func TestDuplicateEventNamesTheEvent(t *testing.T) {
	t.Parallel()
	pool := store(t)
	known := mustAppend(t, pool, "a", 1).EventIDs[0]
	before := contents(t, pool)
	again := event(1)
	again.ID = known
	_, err := kiroku.Append(t.Context(), pool, to("b", kiroku.AnyVersion(), event(0), again))
	duplicate := wantError[*kiroku.DuplicateEventError](t, err)
	if duplicate.EventID != known {
		t.Errorf("names %s, want %s", duplicate.EventID, known)
	}
	wantError[*pgconn.PgError](t, err)
	if contents(t, pool) != before {
		t.Error("something was written")
	}

	_, err = kiroku.Append(t.Context(), pool, to("c", kiroku.AnyVersion(), again), to("d", kiroku.AnyVersion(), again))
	if twice := wantError[*kiroku.DuplicateEventError](t, err); twice.EventID != known || errors.Unwrap(twice) != nil {
		t.Errorf("twice in one call: %+v", twice)
	}
}

func TestAppendRefusesBeforeAnySQL(t *testing.T) {
	t.Parallel()
	valid := event(1)
	with := func(change func(*kiroku.Event)) kiroku.Event {
		e := event(1)
		change(&e)
		return e
	}
	for name, c := range map[string]struct {
		appends []kiroku.StreamAppend
		want    error
	}{
		"$all":          {[]kiroku.StreamAppend{to("$all", kiroku.AnyVersion(), valid)}, &kiroku.ReservedStreamError{}},
		"513 bytes":     {[]kiroku.StreamAppend{to(strings.Repeat("ä", 256)+"x", kiroku.AnyVersion(), valid)}, &kiroku.StreamNameError{}},
		"NUL in a name": {[]kiroku.StreamAppend{to("a\x00", kiroku.AnyVersion(), valid)}, &kiroku.StreamNameError{}},
		"name of bytes": {[]kiroku.StreamAppend{to("a\xff", kiroku.AnyVersion(), valid)}, &kiroku.StreamNameError{}},
		"no events":     {[]kiroku.StreamAppend{to("a", kiroku.AnyVersion())}, &kiroku.EmptyAppendError{}},
		"stream twice": {
			[]kiroku.StreamAppend{to("a", kiroku.AnyVersion(), valid), to("b", kiroku.AnyVersion(), valid), to("a", kiroku.AnyVersion(), valid)},
			&kiroku.RepeatedStreamError{},
		},
		"no type":       {[]kiroku.StreamAppend{to("a", kiroku.AnyVersion(), with(func(e *kiroku.Event) { e.Type = "" }))}, &kiroku.InvalidEventError{}},
		"NUL in a type": {[]kiroku.StreamAppend{to("a", kiroku.AnyVersion(), with(func(e *kiroku.Event) { e.Type = "\x00" }))}, &kiroku.InvalidEventError{}},
		"no data":       {[]kiroku.StreamAppend{to("a", kiroku.AnyVersion(), with(func(e *kiroku.Event) { e.Data = nil }))}, &kiroku.InvalidEventError{}},
		"no JSON":       {[]kiroku.StreamAppend{to("a", kiroku.AnyVersion(), with(func(e *kiroku.Event) { e.Data = []byte("{") }))}, &kiroku.InvalidEventError{}},
		"NUL in data":   {[]kiroku.StreamAppend{to("a", kiroku.AnyVersion(), with(func(e *kiroku.Event) { e.Data = []byte(`"\u0000"`) }))}, &kiroku.InvalidEventError{}},
		"empty metadata": {
			[]kiroku.StreamAppend{to("a", kiroku.AnyVersion(), valid, with(func(e *kiroku.Event) { e.Metadata = []byte{} }))},
			&kiroku.InvalidEventError{},
		},
	} {
		_, err := kiroku.Append(t.Context(), noDatabase{t}, c.appends...)
		if reflect.TypeOf(err) != reflect.TypeOf(c.want) || !errors.Is(err, kiroku.ErrInvalid) {
			t.Errorf("%s: %T %v, want %T", name, err, err, c.want)
		}
	}
	bad := kiroku.Event{Type: "T", Data: []byte(`{}`), Metadata: []byte(`[1,]`)}
	_, err := kiroku.Append(t.Context(), noDatabase{t}, to("a", kiroku.AnyVersion(), valid, bad))
	invalid := wantError[*kiroku.InvalidEventError](t, err)
	if invalid.Stream != "a" || invalid.Index != 1 || invalid.Field != "Metadata" {
		t.Errorf("%+v", invalid)
	}
	wantError[*kiroku.JSONError](t, err)
	if got, err := kiroku.Append(t.Context(), noDatabase{t}); got != nil || err != nil {
		t.Errorf("nothing to append: %v, %v", got, err)
	}
}

// noDatabase fails the test when it is used.
type noDatabase struct{ t *testing.T }

func (d noDatabase) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	d.t.Error("a statement was sent")
	return pgconn.CommandTag{}, errors.New("no database")
}

func (d noDatabase) Query(context.Context, string, ...any) (pgx.Rows, error) {
	d.t.Error("a statement was sent")
	return nil, errors.New("no database")
}

func (d noDatabase) QueryRow(context.Context, string, ...any) pgx.Row {
	d.t.Fatal("a statement was sent")
	return nil
}

func TestNamesAtTheEdgesAreNames(t *testing.T) {
	t.Parallel()
	pool := store(t)
	for name, category := range map[string]string{
		"":                         "",
		"-x":                       "",
		"whole":                    "whole",
		"a-b-c":                    "a",
		"with,comma-1":             "with,comma",
		"$x":                       "$x",
		strings.Repeat("ä", 256):   strings.Repeat("ä", 256),
		strings.Repeat("n", 512):   strings.Repeat("n", 512),
		"日本-語":                     "日本",
		`quote ' " \ {},NULL`:      `quote ' " \ {},NULL`,
		"NULL":                     "NULL",
		" spaces , and\nnewlines ": " spaces , and\nnewlines ",
	} {
		got := mustAppend(t, pool, name, 1)
		streams, err := kiroku.LookupStreams(t.Context(), pool, []int64{got.StreamID})
		if err != nil || len(streams) != 1 || streams[0].Name != name || streams[0].Category != category {
			t.Errorf("%q: %+v, %v", name, streams, err)
		}
		if kiroku.CategoryOf(name) != category {
			t.Errorf("CategoryOf(%q) = %q", name, kiroku.CategoryOf(name))
		}
		if read, err := kiroku.ReadStream(t.Context(), pool, name, 0, 10); err != nil || len(read) != 1 {
			t.Errorf("%q: read %d events, %v", name, len(read), err)
		}
	}
}

func TestRollbacksAndFailuresLeaveNoHolesInTheLog(t *testing.T) {
	t.Parallel()
	pool := store(t)
	known := mustAppend(t, pool, "known", 1).EventIDs[0]
	stop := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() { // a reader never sees a position without all before it
		for {
			select {
			case <-stop:
				return
			default:
			}
			keys, err := kiroku.ReadKeys(t.Context(), pool, 0, 10000)
			if err != nil {
				t.Error(err)
				return
			}
			for i, k := range keys {
				if k.Position != kiroku.Position(i+1) {
					t.Errorf("position %d in place %d", k.Position, i)
					return
				}
			}
		}
	})
	together(6, func(i int) {
		random := rand.New(rand.NewPCG(11, uint64(i)))
		for range 40 {
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			stream := fmt.Sprintf("s-%d", random.IntN(5))
			doomed := event(1)
			if random.IntN(4) == 0 {
				doomed.ID = known
			}
			_, err = kiroku.Append(t.Context(), tx, to(stream, kiroku.AnyVersion(), event(1), doomed))
			if err == nil && random.IntN(3) > 0 {
				err = tx.Commit(t.Context())
			} else {
				err = tx.Rollback(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
		}
	})
	close(stop)
	reader.Wait()
	wantDenseLog(t, pool)
}

func TestAppendNotifiesOncePerStream(t *testing.T) {
	t.Parallel()
	pool := store(t)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	exec(t, conn, `listen "kiroku.events"`)
	if _, err := kiroku.Append(t.Context(), pool,
		to("b-1,2", kiroku.AnyVersion(), events(5)...), to("a-1", kiroku.AnyVersion(), events(2)...)); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, pool, "a-1", 3)
	if _, err := kiroku.Append(t.Context(), pool, to("a-1", kiroku.NoStream(), event(1)), to("c-1", kiroku.NoStream(), event(1))); err == nil {
		t.Error("no conflict")
	}
	exec(t, pool, `update kiroku.streams set deleted_at = now() where stream_name = 'a-1'`)
	exec(t, pool, `select pg_notify('kiroku.events', 'end')`)
	var got []string
	for len(got) == 0 || got[len(got)-1] != "end" {
		n, err := conn.Conn().WaitForNotification(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, n.Payload)
	}
	slices.Sort(got[:2])
	if want := []string{"a-1,2,2", "b-1,2,3,5", "a-1,2,5", "end"}; !slices.Equal(got, want) {
		t.Errorf("notified %q, want %q", got, want)
	}
}

func TestEventsComeBackAsTheyWereAppended(t *testing.T) {
	t.Parallel()
	pool := store(t)
	full := kiroku.Event{
		ID: newID(), Type: "Größe", Data: []byte(`{"a": [1, "x", null]}`), Metadata: []byte(`{"m": true}`),
		CausationID:   uuid.NullUUID{UUID: newID(), Valid: true},
		CorrelationID: uuid.NullUUID{UUID: newID(), Valid: true},
	}
	before := queryOne[time.Time](t, pool, `select clock_timestamp()`)
	got, err := kiroku.Append(t.Context(), pool, to("s-1", kiroku.NoStream(), full, event(7)))
	if err != nil {
		t.Fatal(err)
	}
	after := queryOne[time.Time](t, pool, `select clock_timestamp()`)
	read, err := kiroku.ReadAll(t.Context(), pool, 0, 10)
	if err != nil || len(read) != 2 {
		t.Fatalf("%d events, %v", len(read), err)
	}
	want := []kiroku.RecordedEvent{
		{
			ID: full.ID, Type: full.Type, StreamID: got[0].StreamID, Version: 1, Position: 1, Data: full.Data, Metadata: full.Metadata,
			CausationID: full.CausationID, CorrelationID: full.CorrelationID, RecordedAt: read[0].RecordedAt,
		},
		{
			ID: got[0].EventIDs[1], Type: "Counted", StreamID: got[0].StreamID, Version: 2, Position: 2,
			Data: []byte(`{"n": 7}`), RecordedAt: read[0].RecordedAt,
		},
	}
	if !reflect.DeepEqual(read, want) {
		t.Errorf("read %+v\nwant %+v", read, want)
	}
	if at := read[0].RecordedAt; at.Before(before) || at.After(after) {
		t.Errorf("recorded at %v, not between %v and %v", at, before, after)
	}
	if v := got[0].EventIDs[1].Version(); v != 7 {
		t.Errorf("our ids are UUIDv%d", v)
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

// A later kiroku may check what we do not write: an error that says so.
func TestACheckOfALaterKirokuIsNamed(t *testing.T) {
	t.Parallel()
	pool := store(t)
	exec(t, pool, `
		alter table kiroku.stream_events add column category text;
		alter table kiroku.stream_events add constraint ck_stream_events_all_category check (stream_id <> 0 or category is not null)`)
	_, err := kiroku.Append(t.Context(), pool, to("a", kiroku.AnyVersion(), event(1)))
	schema := wantError[*kiroku.SchemaError](t, err)
	if schema.Object != "constraint ck_stream_events_all_category on kiroku.stream_events" {
		t.Errorf("%+v", schema)
	}
	wantError[*pgconn.PgError](t, err)
}
