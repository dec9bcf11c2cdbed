package shardpub

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"pgregory.net/rapid"

	"github.com/suisha-go/suisha/internal/pgtest"
)

// jsonDocs are documents with what storableJSON must say of them.
func jsonDocs() map[string]bool {
	nested := func(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }
	return map[string]bool{
		"":                             false,
		" ":                            false,
		"x":                            false,
		"0":                            true,
		"null":                         true,
		" true\n":                      true,
		`"text"`:                       true,
		`""`:                           true,
		`{}`:                           true,
		`[[],{}]`:                      true,
		`{"b":1, "a":2}`:               true,
		`{"":{"":[]}}`:                 true,
		`{"a":1}{"a":2}`:               false,
		"\ufeff{}":                     false,
		"\"\xff\"":                     false,
		"\"\xed\xa0\x80\"":             false, // a surrogate as UTF-8
		"\"\x00\"":                     false,
		"\"\x01\"":                     false,
		"\"\x7f\u2028\uffff\"":         true,
		`"\u0000"`:                     false,
		`"a\u0000b"`:                   false,
		`{"\u0000":1}`:                 false,
		`"\\u0000"`:                    true,
		`"\\\u0000"`:                   false,
		`"\u0001\u001f\/\b\f\n\r\t"`:   true,
		`"\ud83d\ude00"`:               true,
		`"\uD83D\uDE00"`:               true,
		`"\ud83d"`:                     false,
		`"\ud83d "`:                    false,
		`"\ud83d\n"`:                   false,
		`"\ud83d\u0041"`:               false,
		`"\ud83d\ud83d\ude00"`:         false,
		`"\ude00"`:                     false,
		`"\ude00\ud83d"`:               false,
		`{"\ud83d":1}`:                 false,
		`{"\ude00":1}`:                 false,
		`"\ud83d\\ude00"`:              false,
		`{"a":1,"b":{"a":1}}`:          true,
		`[{"a":1},{"a":1}]`:            true,
		`{"a":1,"a":1}`:                false,
		`{"a":1,"b":2,"\u0061" : 3}`:   false,
		`{"x":[{"a":{},"b":0,"a":0}]}`: false,
		`{"a":"a","b":"a"}`:            true,
		`["a","a"]`:                    true,
		`{"\"":1,"\\":2}`:              true,
		"-0":                           false,
		"-0.0":                         false,
		"[-0e5]":                       false,
		"-0.1":                         true,
		"-1e-5":                        true,
		"0.10":                         true,
		"1e5":                          true,
		"1E+400":                       true,
		"1e-400":                       true,
		"1e401":                        false,
		"1e400000":                     false,
		"0e400000":                     false,
		"1e-400000":                    false,
		"1e99999999999999999999":       false,
		"1e0000000000000000000000005":  true,
		strings.Repeat("9", 10_000):    true,
		strings.Repeat("9", 10_001):    false,
		"0." + strings.Repeat("9", 9_998) + "e-400": true,
		strings.Repeat("9", 200_000):                false,
		"0." + strings.Repeat("1", 20_000):          false,
		nested(maxJSONDepth):                        true,
		nested(maxJSONDepth + 1):                    false,
		nested(10_000):                              false,
		nested(10_001):                              false,
		strings.Repeat(`{"a":`, maxJSONDepth) + "1" + strings.Repeat("}", maxJSONDepth): true,
		strings.Repeat(`{"a":`, 10_000) + "1" + strings.Repeat("}", 10_000):             false,
		`"` + strings.Repeat("é", 5<<20) + `"`:                                          true,
		`"AAAA"`:                                                                        true,
		`{"_suisha_payload":"base64","data":"AAAA"}`:                                    true,
	}
}

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
	if large := `"` + strings.Repeat("x", MaxPayload) + `"`; storableJSON([]byte(large)) {
		t.Error("a string beyond MaxPayload")
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

// sameJSON compares two documents as values: objects without order but with
// every repetition, numbers by value and sign.
func sameJSON(a, b string) bool {
	x, errX := canonical(a)
	y, errY := canonical(b)
	return errX == nil && errY == nil && x == y
}

// canonical spells a document in one way. It shares nothing with the check: it
// reads tokens.
func canonical(doc string) (string, error) {
	d := json.NewDecoder(strings.NewReader(doc))
	d.UseNumber()
	out, err := canonicalValue(d)
	if err != nil {
		return "", err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return "", errors.New("more than one value")
	}
	return out, nil
}

func canonicalValue(d *json.Decoder) (string, error) {
	token, err := d.Token()
	if err != nil {
		return "", err
	}
	switch v := token.(type) {
	case json.Number:
		n, ok := new(big.Rat).SetString(v.String())
		if !ok {
			return "", errors.New("no number")
		}
		if n.Sign() == 0 && strings.HasPrefix(v.String(), "-") {
			return "-0", nil
		}
		return n.RatString(), nil
	case json.Delim:
		return canonicalContainer(d, v)
	default:
		return fmt.Sprintf("%T %q", v, fmt.Sprint(v)), nil
	}
}

func canonicalContainer(d *json.Decoder, open json.Delim) (string, error) {
	var parts []string
	for d.More() {
		key := ""
		if open == '{' {
			token, err := d.Token()
			if err != nil {
				return "", err
			}
			key = fmt.Sprintf("%q:", token)
		}
		value, err := canonicalValue(d)
		if err != nil {
			return "", err
		}
		parts = append(parts, key+value)
	}
	if _, err := d.Token(); err != nil {
		return "", err
	}
	if open == '{' {
		slices.Sort(parts)
	}
	return open.String() + strings.Join(parts, ","), nil
}

// anyDoc draws documents with the spellings that matter, valid or not.
func anyDoc(depth int) *rapid.Generator[string] {
	text := rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]string{
		"a", "a", "b", "c", "é", "\U0001f600", `\n`, `\"`, `\\`, `\/`, `\u0061`, `\u00e9`, `\ud83d\ude00`, "\x7f", "\u2028",
		`\ud83d`, `\ude00`, `\u0000`, "\x00", "\xff", "\xed\xa0\x80", `\x`, `\u12`,
	}), 0, 2), func(parts []string) string { return `"` + strings.Join(parts, "") + `"` })
	number := rapid.SampledFrom([]string{
		"0", "1", "-1", "10", "0.50", "-0.1", "1e5", "1E+400", "12345678901234567890.123e-400", "-12E-3", "0e0",
		"-0", "-0.00e1", "1e401", "1e400000", "00", "1.", ".5", "+1", "1e",
	})
	literal := rapid.SampledFrom([]string{"true", "false", "null", "nul", "", " "})
	blank := rapid.SampledFrom([]string{"", "", " ", "\t\r\n", "\v"})
	if depth == 0 {
		return rapid.OneOf(text, number, literal)
	}
	return rapid.OneOf(text, number, literal, rapid.Custom(func(r *rapid.T) string {
		object := rapid.Bool().Draw(r, "object")
		var parts []string
		for range rapid.IntRange(0, 3).Draw(r, "values") {
			part := blank.Draw(r, "blank") + anyDoc(depth-1).Draw(r, "value")
			if object {
				part = text.Draw(r, "key") + blank.Draw(r, "blank") + ":" + part
			}
			parts = append(parts, part)
		}
		if object {
			return "{" + strings.Join(parts, ",") + "}"
		}
		return "[" + strings.Join(parts, ",") + blank.Draw(r, "blank") + "]"
	}))
}
