package kiroku_test

import (
	"encoding/json"
	"testing"

	"github.com/suisha-go/suisha/kiroku"
)

// S-49, kiroku.md 8.2: the four shapes that kiroku's programs read.
func TestReasonsHaveKirokusShapes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason        kiroku.Reason
		summary, json string
	}{
		{kiroku.Reason{Kind: kiroku.Poison, Detail: "no"}, "poison: no", `{"detail":"no","kind":"poison"}`},
		{kiroku.Reason{Kind: kiroku.InvalidPayload, Detail: "odd"}, "invalid payload: odd", `{"detail":"odd","kind":"invalid_payload"}`},
		{kiroku.Reason{Kind: kiroku.MaxAttempts, Attempts: 5}, "max retry attempts exceeded (5)", `{"attempts":5,"kind":"max_attempts_exceeded"}`},
		{kiroku.Reason{Kind: kiroku.Other, Detail: "late"}, "late", `{"detail":null,"kind":"other","summary":"late"}`},
		{
			kiroku.Reason{Kind: kiroku.Other, Detail: "E1: late", Extra: map[string]any{"detail": map[string]string{"code": "E1"}}},
			"E1: late", `{"detail":{"code":"E1"},"kind":"other","summary":"E1: late"}`,
		},
		{
			kiroku.Reason{Kind: kiroku.MaxAttempts, Attempts: 2, Extra: map[string]any{"last_error": "boom", "kind": "mine", "attempts": 9}},
			"max retry attempts exceeded (2)", `{"attempts":2,"kind":"max_attempts_exceeded","last_error":"boom"}`,
		},
		{
			kiroku.Reason{Kind: kiroku.Poison, Detail: "a\x00b", Extra: map[string]any{"n": "\x00", "slash": `\u0000`}},
			"poison: a\ufffdb", `{"detail":"a` + "\ufffd" + `b","kind":"poison","n":"\ufffd","slash":"\\u0000"}`,
		},
		{
			kiroku.Reason{Kind: kiroku.MaxAttempts, Attempts: 3, Extra: map[string]any{"f": func() {}}},
			"max retry attempts exceeded (3)", `{"attempts":3,"kind":"max_attempts_exceeded"}`,
		},
	} {
		got, err := json.Marshal(c.reason)
		if err != nil || string(got) != c.json {
			t.Errorf("%s, %v, want %s", got, err, c.json)
		}
		if c.reason.Summary() != c.summary {
			t.Errorf("%q, want %q", c.reason.Summary(), c.summary)
		}
	}
}

func FuzzReasonIsAlwaysStorable(f *testing.F) {
	f.Add("poison", "a\x00b", `\u0000`, 1)
	f.Add("other", "\xff", "\\", 2)
	f.Fuzz(func(t *testing.T, kind, detail, extra string, attempts int) {
		r := kiroku.Reason{
			Kind: kiroku.ReasonKind(kind), Detail: detail, Attempts: attempts,
			Extra: map[string]any{"last_error": extra, extra: detail, "raw": json.RawMessage(extra)},
		}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := kiroku.CheckJSON(text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	})
}
