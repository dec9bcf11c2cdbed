package shardpub

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strings"

	"pgregory.net/rapid"
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
		`"` + strings.Repeat("é", 1<<19) + `"`:                                          true,
		`"AAAA"`:                                                                        true,
		`{"_suisha_payload":"base64","data":"AAAA"}`:                                    true,
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
