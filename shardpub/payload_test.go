package shardpub_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/suisha-go/suisha/shardpub"
)

// oddPayloads are payloads that a store of JSON gets wrong easily.
func oddPayloads() map[string]struct {
	payload []byte
	asJSON  bool // lands as that JSON under PayloadJSON
} {
	type odd = struct {
		payload []byte
		asJSON  bool
	}
	return map[string]odd{
		"text":               {[]byte("x"), false},
		"nil":                {nil, false},
		"empty":              {[]byte{}, false},
		"blank":              {[]byte(" "), false},
		"protobuf":           {[]byte{0x0a, 0x03, 'a', 'b', 'c', 0x10, 0x96, 0x01, 0x00, 0xff}, false},
		"invalid UTF-8":      {[]byte("\"\xff\xfe\""), false},
		"NUL":                {[]byte{0}, false},
		"escaped NUL":        {[]byte(`{"a":"\u0000"}`), false},
		"high surrogate":     {[]byte(`{"a":"\ud83d"}`), false},
		"low surrogate":      {[]byte(`["\ude00"]`), false},
		"surrogate in key":   {[]byte(`{"\ud83d":1}`), false},
		"huge number":        {[]byte(`1e400000`), false},
		"long number":        {bytes.Repeat([]byte("7"), 200_000), false},
		"deep":               {[]byte(strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000)), false},
		"repeated key":       {[]byte(`{"a":1,"a":2}`), false},
		"negative zero":      {[]byte(`-0`), false},
		"two documents":      {[]byte(`{}{}`), false},
		"object":             {[]byte(`{"b":1, "a":2}`), true},
		"number":             {[]byte(`0`), true},
		"null":               {[]byte(`null`), true},
		"string":             {[]byte(`"text"`), true},
		"surrogate pair":     {[]byte(`"\ud83d\ude00"`), true},
		"looks wrapped":      {[]byte(`"aGVsbG8="`), true},
		"looks marked":       {[]byte(`{"_suisha_payload":"base64","data":"aGVsbG8="}`), true},
		"base64 of a letter": {[]byte(base64.StdEncoding.EncodeToString([]byte("x"))), false},
		"big text":           {bytes.Repeat([]byte("0123456789abcdef"), 64<<10), false},
		"big JSON":           {[]byte(`{"text":"` + strings.Repeat("0123456789abcdef", 64<<10) + `"}`), true},
	}
}

func TestPayloadsComeBackFromTheCodec(t *testing.T) {
	t.Parallel()
	for name, odd := range oddPayloads() {
		for codec, c := range map[string]shardpub.PayloadCodec{"JSON": shardpub.PayloadJSON{}, "exact": shardpub.PayloadExact{}} {
			data, encoding, err := c.Encode(odd.payload)
			if err != nil {
				t.Errorf("%s, %s: %v", name, codec, err)
				continue
			}
			if !json.Valid(data) {
				t.Errorf("%s, %s: data is no JSON", name, codec)
			}
			asJSON := odd.asJSON && codec == "JSON"
			if asJSON != (encoding == "") || asJSON && !bytes.Equal(data, odd.payload) {
				t.Errorf("%s, %s: encoding %q, want JSON as it is: %v", name, codec, encoding, asJSON)
			}
			got, err := c.Decode(data, encoding)
			if err != nil || !bytes.Equal(got, odd.payload) {
				t.Errorf("%s, %s: came back different, %v", name, codec, err)
			}
		}
	}
}

func TestEitherCodecReadsTheOther(t *testing.T) {
	t.Parallel()
	payload := []byte(`{"a":1}`)
	data, encoding, err := shardpub.PayloadExact{}.Encode(payload)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := (shardpub.PayloadJSON{}).Decode(data, encoding); err != nil || !bytes.Equal(got, payload) {
		t.Errorf("PayloadJSON reads %q, %v", got, err)
	}
	if got, err := (shardpub.PayloadExact{}).Decode(payload, ""); err != nil || !bytes.Equal(got, payload) {
		t.Errorf("PayloadExact reads %q, %v", got, err)
	}
}

func TestDataThatIsNotWhatItsMarkSaysIsATypedError(t *testing.T) {
	t.Parallel()
	for _, bad := range []struct{ data, encoding string }{
		{`{"a":1}`, "base64"},
		{`"a`, "base64"},
		{`"`, "base64"},
		{``, "base64"},
		{`"*"`, "base64"},
		{`"eA"`, "base64"},
		{`"eB=="`, "base64"}, // bits left over: not what Encode writes
		{`"eA=="`, "gzip"},
	} {
		for _, c := range []shardpub.PayloadCodec{shardpub.PayloadJSON{}, shardpub.PayloadExact{}} {
			_, err := c.Decode([]byte(bad.data), bad.encoding)
			var typed *shardpub.PayloadError
			if !errors.As(err, &typed) || typed.Encoding != bad.encoding {
				t.Errorf("%s as %q: %v, want a *PayloadError", bad.data, bad.encoding, err)
			}
		}
	}
}

func TestPayloadThatFitsIntoNoEventIsATypedError(t *testing.T) {
	t.Parallel()
	_, _, err := shardpub.PayloadJSON{}.Encode(make([]byte, shardpub.MaxPayload+1))
	var typed *shardpub.PayloadTooLargeError
	if !errors.As(err, &typed) || typed.Size != shardpub.MaxPayload+1 || typed.Limit != shardpub.MaxPayload {
		t.Errorf("%v, want a *PayloadTooLargeError", err)
	}
}

func FuzzPayload(f *testing.F) {
	for _, odd := range oddPayloads() {
		if len(odd.payload) < 1000 {
			f.Add(odd.payload)
		}
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		for _, c := range []shardpub.PayloadCodec{shardpub.PayloadJSON{}, shardpub.PayloadExact{}} {
			data, encoding, err := c.Encode(payload)
			if err != nil || !json.Valid(data) {
				t.Fatalf("%T: %q became %q, %v", c, payload, data, err)
			}
			got, err := c.Decode(data, encoding)
			if err != nil || !bytes.Equal(got, payload) {
				t.Fatalf("%T: %q came back as %q, %v", c, payload, got, err)
			}
		}
	})
}
