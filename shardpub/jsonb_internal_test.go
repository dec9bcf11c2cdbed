package shardpub

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"pgregory.net/rapid"

	"github.com/suisha-go/suisha/internal/pgtest"
)

func TestStorableJSON(t *testing.T) {
	t.Parallel()
	for doc, want := range jsonDocs() {
		if got := storableJSON([]byte(doc)); got != want {
			t.Errorf("%s: storable %v, want %v", clip(doc), got, want)
		}
	}
}

func TestStorableJSONBoundsSizes(t *testing.T) {
	t.Parallel()
	if grown := "[" + strings.Repeat("1e400,", 700_000) + "0]"; storableJSON([]byte(grown)) {
		t.Error("4.2 MB of exponents would be printed as 280 MB")
	}
	if storableJSON(make([]byte, MaxPayload+1)) {
		t.Error("more than MaxPayload")
	}
}

// TestServerTakesWhatIsStorable asks the server: whatever the check calls
// storable is taken, under the smallest stack that it can be configured with,
// and comes back as an equal JSON value.
func TestServerTakesWhatIsStorable(t *testing.T) {
	t.Parallel()
	conn := jsonServer(t)
	for doc, storable := range jsonDocs() {
		if storable {
			askServer(t, conn, doc)
		}
	}
}

// TestServerRefusesOrChanges shows what the check is for.
func TestServerRefusesOrChanges(t *testing.T) {
	t.Parallel()
	conn := jsonServer(t)
	for _, doc := range []string{`"\u0000"`, `{"\u0000":1}`, `"\ud83d"`, `"\ude00"`, `"\ud83d\u0041"`, "1e400000"} {
		_, err := jsonbRoundTrip(t, conn, doc)
		var refused *pgconn.PgError
		if !errors.As(err, &refused) {
			t.Errorf("%s: %v, want a refusal", doc, err)
		}
	}
	for _, doc := range []string{`{"a":1,"a":2}`, "-0"} {
		got, err := jsonbRoundTrip(t, conn, doc)
		if err != nil || sameJSON(doc, got) {
			t.Errorf("%s: came back as %s, %v: want another value", doc, got, err)
		}
	}
}

func TestServerTakesWhatIsStorableProperty(t *testing.T) {
	t.Parallel()
	conn := jsonServer(t)
	rapid.Check(t, func(r *rapid.T) {
		for _, doc := range rapid.SliceOfN(anyDoc(4), 1, 20).Draw(r, "docs") {
			got, err := jsonbRoundTrip(t, conn, doc)
			if storableJSON([]byte(doc)) && (err != nil || !sameJSON(doc, got)) {
				r.Fatalf("%q is called storable: %q, %v", doc, got, err)
			}
		}
	})
}

func FuzzStorableJSON(f *testing.F) {
	for doc := range jsonDocs() {
		if len(doc) < 1000 {
			f.Add([]byte(doc))
		}
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		if !storableJSON(doc) {
			return
		}
		if !json.Valid(doc) {
			t.Fatalf("%q is no JSON", doc)
		}
		// What Go decodes and encodes again is the same value, which it is not
		// where keys repeat or surrogates are alone.
		var v any
		d := json.NewDecoder(strings.NewReader(string(doc)))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			t.Fatalf("%q: %v", doc, err)
		}
		again, err := json.Marshal(v)
		if err != nil || !sameJSON(string(doc), string(again)) {
			t.Fatalf("%q became %q, %v", doc, again, err)
		}
	})
}

// jsonServer returns a connection with the least room for recursion.
func jsonServer(t *testing.T) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.DSN(pgtest.New(t, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	if _, err := conn.Exec(t.Context(), `set max_stack_depth = '100kB'`); err != nil {
		t.Fatal(err)
	}
	return conn
}

func jsonbRoundTrip(t *testing.T, conn *pgx.Conn, doc string) (got string, err error) {
	err = conn.QueryRow(t.Context(), `select $1::text::jsonb::text`, doc).Scan(&got)
	return got, err
}

func askServer(t *testing.T, conn *pgx.Conn, doc string) {
	t.Helper()
	got, err := jsonbRoundTrip(t, conn, doc)
	if err != nil {
		t.Errorf("%s: %v", clip(doc), err)
	} else if !sameJSON(doc, got) {
		t.Errorf("%s came back as %s", clip(doc), clip(got))
	}
}
