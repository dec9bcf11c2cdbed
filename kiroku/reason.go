package kiroku

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
)

// ReasonKind tells the shapes of a dead letter's reason apart. The spellings
// are kiroku's; tools of both read them.
type ReasonKind string

// The four kinds.
const (
	// Poison: the handler said that it can never handle this event.
	Poison ReasonKind = "poison"
	// InvalidPayload: the event could not be made into a message.
	InvalidPayload ReasonKind = "invalid_payload"
	// MaxAttempts: every delivery that the policy allows has failed.
	MaxAttempts ReasonKind = "max_attempts_exceeded"
	// Other: the summary says it.
	Other ReasonKind = "other"
)

// Reason is why an event was given up.
type Reason struct {
	Kind ReasonKind
	// Detail is the text of Poison and InvalidPayload, the summary of Other.
	Detail string
	// Attempts is the number of deliveries, for MaxAttempts.
	Attempts int
	// Extra adds keys to the JSON (last_error, for one). It cannot replace
	// kiroku's own keys.
	Extra map[string]any
}

// Summary is the reason in one line, in kiroku's words.
func (r Reason) Summary() string {
	switch r.Kind {
	case Poison:
		return "poison: " + storableText(r.Detail)
	case InvalidPayload:
		return "invalid payload: " + storableText(r.Detail)
	case MaxAttempts:
		return "max retry attempts exceeded (" + strconv.Itoa(r.Attempts) + ")"
	default:
		return storableText(r.Detail)
	}
}

// MarshalJSON writes the shape that kiroku writes, with Extra beside it. It
// never fails, and PostgreSQL takes the result whatever an error's text holds:
// what jsonb cannot store is replaced, and an Extra that cannot be stored at all
// is left out. A dead letter must not be lost over its reason.
func (r Reason) MarshalJSON() ([]byte, error) {
	if text, err := json.Marshal(r.shape(r.Extra)); err == nil {
		text = storableJSON(text)
		if CheckJSON(text) == nil {
			return text, nil
		}
	}
	return json.Marshal(r.shape(nil))
}

func (r Reason) shape(extra map[string]any) map[string]any {
	out := map[string]any{}
	for key, value := range extra {
		out[storableText(key)] = value
	}
	out["kind"] = storableText(string(r.Kind))
	switch r.Kind {
	case MaxAttempts:
		out["attempts"] = r.Attempts
	case Other:
		out["summary"] = storableText(r.Detail)
		if _, ok := out["detail"]; !ok {
			out["detail"] = nil
		}
	default:
		out["detail"] = storableText(r.Detail)
	}
	return out
}

// storableText replaces what PostgreSQL's text cannot hold.
func storableText(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\ufffd"), "\x00", "\ufffd")
}

// storableJSON replaces what jsonb cannot hold in strings: the NUL character.
// (json.Marshal writes neither invalid UTF-8 nor half surrogate pairs, except
// from a json.RawMessage.)
func storableJSON(text []byte) []byte {
	const escape = len(`\u0000`)
	for i := 0; i+1 < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		if bytes.HasPrefix(text[i:], []byte(`\u0000`)) {
			copy(text[i:], `\ufffd`)
			i += escape - 1
			continue
		}
		i++ // the escaped character, which may be a backslash
	}
	return text
}
