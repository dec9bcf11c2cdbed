package kiroku_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/suisha-go/suisha/kiroku"
)

var jsonTexts = map[string]bool{
	`{}`: true, ` [1, 2.5e3, -0, "x", null, true, false] `: true, `"\u00e9\n\\u0000"`: true, `"\ud83d\ude00"`: true,
	`1e131071`: true, `1e-16383`: true, `0.00001e-16378`: true, `0.1e131072`: true, `12e131070`: true, `0e400000`: true, `-0.00e131072`: true,

	``: false, ` `: false, `{`: false, `{"a":1,}`: false, `nul`: false, `1 2`: false, `01`: false, "\"\x01\"": false,
	"\"\xff\"": false, `"\u0000"`: false, `["x", {"\u0000": 1}]`: false, `"\\\u0000"`: false,
	`"\ud83d"`: false, `"\ud83dx"`: false, `"\ud83d\n"`: false, `"\ude00\ud83d"`: false, `"\ud83d\ud83d"`: false, `"\ude00"`: false,
	`1e131072`: false, `10e131071`: false, `1e-16384`: false, `0.0e-17000`: false, `1e400000`: false, `[1e9999999999999999999]`: false,
	`-1e400000`: false,
}

func TestCheckJSONSaysBeforehandWhatJSONBTakes(t *testing.T) {
	t.Parallel()
	pool := store(t)
	texts := map[string]bool{
		strings.Repeat("[", 1000) + strings.Repeat("]", 1000):           true,
		strings.Repeat("[", 1001) + strings.Repeat("]", 1001):           false,
		strings.Repeat(`{"a":`, 1000) + "1" + strings.Repeat("}", 1000): true,
		strings.Repeat("[", 20000) + strings.Repeat("]", 20000):         false,
		"[" + strings.Repeat("1,", 100_000) + "1]":                      true,
		strings.Repeat("9", 131072):                                     true,
		strings.Repeat("9", 131073):                                     false,
		"0." + strings.Repeat("1", 16383):                               true,
		"0." + strings.Repeat("1", 16384):                               false,
	}
	maps.Copy(texts, jsonTexts)
	for text, ok := range texts {
		err := kiroku.CheckJSON([]byte(text))
		if (err == nil) != ok {
			t.Errorf("%.60q: %v, want ok %v", text, err, ok)
		}
		if err != nil {
			wantError[*kiroku.JSONError](t, err)
			continue
		}
		if _, err := pool.Exec(t.Context(), `select $1::text::jsonb`, text); err != nil {
			t.Errorf("%.60q passed, and the server says %v", text, err)
		}
	}
}

// Whatever passes, the server takes.
func TestJSONThatPassesIsTakenByTheServer(t *testing.T) {
	t.Parallel()
	pool := store(t)
	piece := rapid.SampledFrom([]string{
		`\u0000`, `\ud83d`, `\ude00`, `\u12ab`, `\\`, `\"`, "ä", "x", `\n`, "\x7f", "\u2028",
	})
	text := rapid.Custom(func(t *rapid.T) string {
		return `"` + strings.Join(rapid.SliceOfN(piece, 0, 5).Draw(t, "pieces"), "") + `"`
	})
	number := rapid.Custom(func(t *rapid.T) string {
		n := rapid.SampledFrom([]string{"0", "1", "-12", "0.5", "123.456", "-0.001"}).Draw(t, "mantissa")
		if rapid.Bool().Draw(t, "exponent") {
			n += fmt.Sprintf("e%d", rapid.SampledFrom([]int{0, 1, -1, 131068, 131071, 131072, -16380, -16383, -16384, 999999}).Draw(t, "e"))
		}
		return n
	})
	var value func(depth int) *rapid.Generator[string]
	value = func(depth int) *rapid.Generator[string] {
		leaf := rapid.OneOf(text, number, rapid.SampledFrom([]string{"null", "true", "false"}))
		if depth == 0 {
			return leaf
		}
		inner := value(depth - 1)
		return rapid.OneOf(leaf,
			rapid.Custom(func(t *rapid.T) string {
				return "[" + strings.Join(rapid.SliceOfN(inner, 0, 4).Draw(t, "elements"), ",") + "]"
			}),
			rapid.Custom(func(t *rapid.T) string {
				var pairs []string
				for _, v := range rapid.SliceOfN(inner, 0, 3).Draw(t, "values") {
					pairs = append(pairs, text.Draw(t, "key")+": "+v)
				}
				return "{" + strings.Join(pairs, ",") + "}"
			}))
	}
	rapid.Check(t, func(rt *rapid.T) {
		text := value(3).Draw(rt, "json")
		if !json.Valid([]byte(text)) {
			rt.Fatalf("not JSON: %s", text)
		}
		passed := kiroku.CheckJSON([]byte(text)) == nil
		_, err := pool.Exec(t.Context(), `select $1::text::jsonb`, text)
		if passed != (err == nil) {
			rt.Fatalf("passed %v, server: %v: %s", passed, err, text)
		}
	})
}

func FuzzCheckJSON(f *testing.F) {
	for text := range jsonTexts {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := kiroku.CheckJSON(text); err == nil && !json.Valid(text) {
			t.Errorf("%q passed", text)
		}
	})
}
