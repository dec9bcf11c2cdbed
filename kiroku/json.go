package kiroku

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// What PostgreSQL's jsonb can hold, a little on the safe side.
const (
	maxJSONDepth      = 1000      // the server's stack bounds it, at some 7000 by default
	maxJSONBytes      = 255 << 20 // an array or object takes 256 MiB
	jsonValueOverhead = 16        // bytes that jsonb adds to a value, at most
	maxIntegerDigits  = 131072    // of numeric
	maxFractionDigits = 16383
	maxExponent       = 1_000_000 // far from overflow in the sums here
)

// JSONError says why PostgreSQL's jsonb cannot hold a text.
type JSONError struct {
	Problem string
	// Offset is where, in bytes from the start.
	Offset int
}

func (e *JSONError) Error() string { return fmt.Sprintf("%s at byte %d", e.Problem, e.Offset) }

// CheckJSON tells whether PostgreSQL's jsonb can hold a text, without asking
// it: a [*JSONError] if not. Beyond being JSON it must be UTF-8, without
// "\u0000" and half surrogate pairs, with numbers in the range of numeric, at
// most 1000 levels deep and not nearly 256 MiB large.
//
// jsonb keeps the value, not the text: spaces, the order of keys, all but the
// last of equal keys and the spelling of numbers are lost.
func CheckJSON(text []byte) error {
	if !json.Valid(text) {
		return invalidJSON(text)
	}
	if !utf8.Valid(text) {
		return &JSONError{Problem: "not UTF-8", Offset: firstInvalidUTF8(text)}
	}
	size, depth := 0, 0
	for i := 0; i < len(text); {
		next := i + 1
		switch c := text[i]; c {
		case '[', '{':
			if depth++; depth > maxJSONDepth {
				return &JSONError{Problem: fmt.Sprintf("nested deeper than %d levels", maxJSONDepth), Offset: i}
			}
			size += jsonValueOverhead
		case ']', '}':
			depth--
		case '"':
			end, err := checkJSONString(text, i)
			if err != nil {
				return err
			}
			next, size = end, size+jsonValueOverhead
		case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			end, digits := numberEnd(text, i)
			if digits < 0 {
				return &JSONError{Problem: "number out of range", Offset: i}
			}
			next, size = end, size+jsonValueOverhead+digits
		case 't', 'f', 'n':
			next, size = i+len("null"), size+jsonValueOverhead // the e of false is skipped below
		}
		i = next
	}
	if size+len(text) > maxJSONBytes {
		return &JSONError{Problem: "too large", Offset: len(text)}
	}
	return nil
}

// invalidJSON lets the parser say what is wrong.
func invalidJSON(text []byte) error {
	var raw json.RawMessage
	err := json.Unmarshal(text, &raw)
	if syntax, ok := err.(*json.SyntaxError); ok { //nolint:errorlint // Unmarshal does not wrap it
		return &JSONError{Problem: syntax.Error(), Offset: int(syntax.Offset)}
	}
	return &JSONError{Problem: "not JSON"}
}

func firstInvalidUTF8(text []byte) int {
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(text)
}

// checkJSONString reads the valid string that begins at start and returns where
// it ends.
func checkJSONString(text []byte, start int) (end int, err error) {
	for i := start + 1; ; {
		n := bytes.IndexAny(text[i:], `"\`)
		i += n
		if text[i] == '"' {
			return i + 1, nil
		}
		if text[i+1] != 'u' {
			i += len(`\n`)
			continue
		}
		const escape = len(`\u0000`)
		r := hexRune(text[i+2:])
		switch {
		case r == 0:
			return 0, &JSONError{Problem: `"\u0000"`, Offset: i}
		case !utf16.IsSurrogate(r):
			i += escape
			continue
		}
		rest := text[i+escape:]
		if !bytes.HasPrefix(rest, []byte(`\u`)) || utf16.DecodeRune(r, hexRune(rest[2:])) == utf8.RuneError {
			return 0, &JSONError{Problem: "half a surrogate pair", Offset: i}
		}
		i += 2 * escape
	}
}

func hexRune(text []byte) rune {
	n, _ := strconv.ParseUint(string(text[:4]), 16, 16) // the parser has seen four digits
	return rune(n)
}

// numberEnd reads the valid number that begins at start: where it ends and how
// many digits numeric keeps of it, or -1 when it keeps none.
func numberEnd(text []byte, start int) (end, digits int) {
	i := start
	if text[i] == '-' {
		i++
	}
	integer, i := digitsAt(text, i)
	var fraction []byte
	if i < len(text) && text[i] == '.' {
		fraction, i = digitsAt(text, i+1)
	}
	exponent := 0
	if i < len(text) && (text[i] == 'e' || text[i] == 'E') {
		from := i + 1
		i = from
		if text[i] == '+' || text[i] == '-' {
			i++
		}
		_, i = digitsAt(text, i)
		var err error
		if exponent, err = strconv.Atoi(string(text[from:i])); err != nil || max(exponent, -exponent) > maxExponent {
			return i, -1
		}
	}
	before, after := exponent+leadingDigit(integer, fraction), len(fraction)-exponent
	if isZero(integer) && isZero(fraction) {
		before = 0
	}
	if before > maxIntegerDigits || after > maxFractionDigits {
		return i, -1
	}
	return i, max(before, 0) + max(after, 0)
}

func digitsAt(text []byte, start int) (digits []byte, end int) {
	for end = start; end < len(text) && '0' <= text[end] && text[end] <= '9'; end++ {
	}
	return text[start:end], end
}

// leadingDigit is how many digits before the point the first one that is not
// zero stands; 0 or less if it stands behind.
func leadingDigit(integer, fraction []byte) int {
	if !isZero(integer) {
		return len(integer) // JSON allows no zeros in front
	}
	return len(bytes.TrimLeft(fraction, "0")) - len(fraction)
}

func isZero(digits []byte) bool { return len(bytes.Trim(digits, "0")) == 0 }
