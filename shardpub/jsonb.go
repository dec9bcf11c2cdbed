package shardpub

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/suisha-go/suisha/kiroku"
)

// Bounds that are tighter than jsonb's. The depth that a server takes hangs on
// max_stack_depth, which can be set to as little as 100 kB; an exponent is
// written out in full, so that nine bytes could be read back as a hundred
// thousand.
const (
	maxJSONDepth    = 256
	maxJSONDigits   = 10_000
	maxJSONExponent = 400
)

// storableJSON reports whether PostgreSQL's jsonb takes doc and gives back an
// equal JSON value. It is conservative: it may say no to a document that would
// have been fine, never yes to one that is refused or changed.
//
// What jsonb refuses, [kiroku.CheckJSON] knows. It changes objects that repeat a
// key, of which it keeps the last, and negative zero, which loses its sign.
// Blanks, the order of keys, and the spelling of numbers and escapes change too,
// but not the value.
func storableJSON(doc []byte) bool {
	if len(doc) > MaxPayload || kiroku.CheckJSON(doc) != nil {
		return false
	}
	s := jsonScan{doc: doc}
	return s.lossless()
}

// jsonScan walks over a document of which the grammar is known to be right.
type jsonScan struct {
	doc []byte
	at  int
	// open has an entry per container around at: the keys of an object so far.
	open []map[string]struct{}
}

func (s *jsonScan) lossless() bool {
	for s.at < len(s.doc) {
		ok := true
		switch c := s.doc[s.at]; {
		case c == '{' || c == '[':
			s.at++
			s.open = append(s.open, nil)
			ok = len(s.open) <= maxJSONDepth
		case c == '}' || c == ']':
			s.at++
			s.open = s.open[:len(s.open)-1]
		case c == '"':
			ok = s.text()
		case c == '-' || '0' <= c && c <= '9':
			ok = s.number()
		default: // blanks, commas, colons, literals
			s.at++
		}
		if !ok {
			return false
		}
	}
	return true
}

// text passes over a string and, if it is a key, notes it.
func (s *jsonScan) text() bool {
	start, escaped := s.at, false
	for s.at++; s.doc[s.at] != '"'; s.at++ {
		if s.doc[s.at] == '\\' {
			escaped = true
			s.at++
		}
	}
	s.at++
	quoted := s.doc[start:s.at]
	for s.at < len(s.doc) && isJSONBlank(s.doc[s.at]) {
		s.at++
	}
	if s.at == len(s.doc) || s.doc[s.at] != ':' {
		return true
	}
	return s.key(quoted, escaped)
}

// key notes a key of the innermost object; false when it has it already.
func (s *jsonScan) key(quoted []byte, escaped bool) bool {
	name := string(quoted[1 : len(quoted)-1])
	if escaped && json.Unmarshal(quoted, &name) != nil {
		return false
	}
	top := len(s.open) - 1
	if _, twice := s.open[top][name]; twice {
		return false
	}
	if s.open[top] == nil {
		s.open[top] = make(map[string]struct{})
	}
	s.open[top][name] = struct{}{}
	return true
}

// number passes over a number; false when it is too long, or a negative zero.
func (s *jsonScan) number() bool {
	start := s.at
	for s.at < len(s.doc) && strings.IndexByte("+-.eE0123456789", s.doc[s.at]) >= 0 {
		s.at++
	}
	mantissa, exponent := string(s.doc[start:s.at]), "0"
	if e := strings.IndexAny(mantissa, "eE"); e >= 0 {
		mantissa, exponent = mantissa[:e], mantissa[e+1:]
	}
	power, err := strconv.Atoi(exponent)
	if err != nil || max(power, -power) > maxJSONExponent || len(mantissa) > maxJSONDigits {
		return false
	}
	return mantissa[0] != '-' || strings.ContainsAny(mantissa, "123456789")
}

func isJSONBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// storableText reports whether PostgreSQL takes s as text, on its own or as a
// JSON string.
func storableText(s string) bool {
	return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0
}
