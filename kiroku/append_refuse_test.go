package kiroku_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/suisha-go/suisha/kiroku"
)

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
