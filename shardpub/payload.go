package shardpub

import (
	"encoding/base64"
	"encoding/json"
	"errors"
)

// MaxPayload is the largest payload, in bytes, that the codecs of this package
// put into one event: 128 MiB.
const MaxPayload = 128 << 20

// encodingBase64 marks data that is a JSON string with the payload in base64.
const encodingBase64 = "base64"

// PayloadCodec turns a message's payload into an event's data and back.
// Implementations must be pure and safe for concurrent use.
type PayloadCodec interface {
	// Encode returns JSON that PostgreSQL's jsonb takes without changing its
	// value, and the name of what was done to the payload; "" means that the data
	// is the payload. The name is kept in the event's metadata as
	// [MetadataPayload] and given to Decode. It must be valid UTF-8 without NUL.
	Encode(payload []byte) (data json.RawMessage, encoding string, err error)
	// Decode returns the payload. data is as jsonb prints it.
	Decode(data []byte, encoding string) ([]byte, error)
}

// PayloadJSON keeps JSON as JSON: the document lands in the event's data as it
// is, so that data->>'b' works in SQL and every reader of the store sees the
// object, and comes back equal as JSON (jsonb does not keep blanks, the order of
// keys, or the spelling of numbers and escapes).
//
// Any other payload comes back byte for byte: it is stored as a JSON string in
// base64, marked in the metadata. That goes for what is no JSON at all, and for
// JSON that jsonb would refuse or change: U+0000, surrogates without a partner,
// invalid UTF-8, a repeated key, negative zero, numbers of more than 10,000
// digits or with an exponent beyond 400, more than 256 levels, and documents of
// so many values that jsonb would need more than 255 MiB.
//
// It is the default.
type PayloadJSON struct{}

// Encode implements [PayloadCodec]. It fails with [*PayloadTooLargeError] only.
func (PayloadJSON) Encode(payload []byte) (json.RawMessage, string, error) {
	if storableJSON(payload) {
		return payload, "", nil
	}
	return wrapPayload(payload)
}

// Decode implements [PayloadCodec]. It reads what [PayloadExact] wrote, too.
func (PayloadJSON) Decode(data []byte, encoding string) ([]byte, error) {
	return unwrapPayload(data, encoding)
}

// PayloadExact keeps every payload byte for byte, JSON too: as a JSON string in
// base64, marked in the metadata. Events that other writers appended as plain
// JSON are delivered as jsonb prints them.
type PayloadExact struct{}

// Encode implements [PayloadCodec]. It fails with [*PayloadTooLargeError] only.
func (PayloadExact) Encode(payload []byte) (json.RawMessage, string, error) {
	return wrapPayload(payload)
}

// Decode implements [PayloadCodec]. It reads what [PayloadJSON] wrote, too.
func (PayloadExact) Decode(data []byte, encoding string) ([]byte, error) {
	return unwrapPayload(data, encoding)
}

func wrapPayload(payload []byte) (json.RawMessage, string, error) {
	if len(payload) > MaxPayload {
		return nil, "", &PayloadTooLargeError{Size: len(payload), Limit: MaxPayload}
	}
	data := make([]byte, 0, base64.StdEncoding.EncodedLen(len(payload))+2)
	data = append(data, '"')
	data = base64.StdEncoding.AppendEncode(data, payload)
	return append(data, '"'), encodingBase64, nil
}

var (
	errUnknownEncoding = errors.New("unknown encoding")
	errNotWrapped      = errors.New("data is not a JSON string")
)

func unwrapPayload(data []byte, encoding string) ([]byte, error) {
	switch encoding {
	case "":
		return data, nil
	case encodingBase64:
	default:
		return nil, &PayloadError{Encoding: encoding, Err: errUnknownEncoding}
	}
	// base64 needs no escapes, so the text between the quotes is the string.
	if len(data) < 2 || data[0] != '"' || data[len(data)-1] != '"' {
		return nil, &PayloadError{Encoding: encoding, Err: errNotWrapped}
	}
	payload, err := base64.StdEncoding.Strict().AppendDecode([]byte{}, data[1:len(data)-1])
	if err != nil {
		return nil, &PayloadError{Encoding: encoding, Err: err}
	}
	return payload, nil
}
