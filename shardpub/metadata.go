package shardpub

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Metadata that users may set on a message that they publish.
const (
	// MetadataKey is the message's partition key: messages of one topic and key
	// are one stream and are handled in order. It stays with the event, so that a
	// message that is published on keeps its key.
	MetadataKey = "suisha_key"
	// MetadataExpectedVersion makes the append depend on the stream: "any",
	// "no_stream", "stream_exists", or the number of its last event. It is an
	// instruction to the publisher and does not stay with the event.
	MetadataExpectedVersion = "suisha_expected_version"
	// MetadataName is the kind of event, kiroku's event_type; Watermill's cqrs
	// component writes and reads it.
	MetadataName = "name"
	// MetadataCorrelationID and MetadataCausationID fill kiroku's columns of
	// these names when they hold a UUID.
	MetadataCorrelationID = "correlation_id"
	MetadataCausationID   = "causation_id"
)

// reservedPrefix starts the metadata keys that only this package writes.
const reservedPrefix = "_suisha_"

// Metadata that a Subscriber sets on what it delivers: the fields of [Delivery].
// A message that is published on loses them; set by anybody else they are no
// error, but they are not kept.
const (
	MetadataSubscription = reservedPrefix + "subscription"
	MetadataBucket       = reservedPrefix + "bucket"
	MetadataShards       = reservedPrefix + "shards"
	MetadataAttempt      = reservedPrefix + "attempt"
	MetadataPosition     = reservedPrefix + "position"
	MetadataStream       = reservedPrefix + "stream"
	MetadataVersion      = reservedPrefix + "version"
	MetadataEventID      = reservedPrefix + "event_id"
	MetadataEventType    = reservedPrefix + "event_type"
	MetadataRecordedAt   = reservedPrefix + "recorded_at"
	MetadataWorker       = reservedPrefix + "worker"
	// MetadataForeign holds the metadata of an event, as JSON, that is not an
	// object: another writer's array, string or number.
	MetadataForeign = reservedPrefix + "metadata"
)

// Metadata that is in the event store only, beside what the user set.
const (
	// MetadataMessageUUID keeps the message's UUID, which is not the event's id.
	MetadataMessageUUID = "_watermill_message_uuid"
	// MetadataPayload says how the payload became data; absent when the data is
	// the payload. See [PayloadCodec].
	MetadataPayload = reservedPrefix + "payload"
	// metadataBinary holds what PostgreSQL takes for no text: an object of key and
	// value, both in base64.
	metadataBinary = reservedPrefix + "binary"
)

var deliveryMetadata = []string{
	MetadataSubscription, MetadataBucket, MetadataShards, MetadataAttempt, MetadataPosition, MetadataStream,
	MetadataVersion, MetadataEventID, MetadataEventType, MetadataRecordedAt, MetadataWorker, MetadataForeign,
}

// checkMetadata refuses the keys that only this package writes, except for
// those that a delivered message carries.
func checkMetadata(m message.Metadata) error {
	for key := range m {
		reserved := strings.HasPrefix(key, reservedPrefix) || key == MetadataMessageUUID
		if reserved && !slices.Contains(deliveryMetadata, key) {
			return &MetadataError{Key: key}
		}
	}
	return nil
}

// storedMetadata is what the metadata of an event says, apart.
type storedMetadata struct {
	user     message.Metadata
	uuid     string // the message's
	ours     bool   // written by this package: it has a message UUID
	encoding string // of the payload
}

// encode writes the JSON object that the event keeps. All values are strings,
// except for the one object of what is no text.
func (s storedMetadata) encode() (json.RawMessage, error) {
	object, binary := map[string]any{}, map[string]string{}
	put := func(key, value string) {
		if storableText(key) && storableText(value) {
			object[key] = value
			return
		}
		binary[toBase64(key)] = toBase64(value)
	}
	for key, value := range s.user {
		if !strings.HasPrefix(key, reservedPrefix) {
			put(key, value)
		}
	}
	put(MetadataMessageUUID, s.uuid)
	if s.encoding != "" {
		put(MetadataPayload, s.encoding)
	}
	if len(binary) > 0 {
		object[metadataBinary] = binary
	}
	return json.Marshal(object)
}

// decodeMetadata reads the metadata of an event, whoever wrote it. It never
// fails: what is no string becomes one.
func decodeMetadata(raw []byte) storedMetadata {
	s := storedMetadata{user: make(message.Metadata, metadataRoom)}
	if len(raw) == 0 || string(raw) == "null" || s.plain(string(raw)) {
		return s
	}
	return decodeAny(raw)
}

func decodeAny(raw []byte) storedMetadata {
	s := storedMetadata{user: make(message.Metadata, metadataRoom)}
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) != nil {
		s.user[MetadataForeign] = string(raw)
		return s
	}
	for key, value := range object {
		s.put(key, flatten(value))
	}
	addBinary(object[metadataBinary], s.put)
	return s
}

// metadataRoom is for what a delivery adds and a few of the user's: as many as fit
// sixteen places of a map.
const metadataRoom = 14

// put takes in one pair.
func (s *storedMetadata) put(key, value string) {
	switch {
	case key == MetadataMessageUUID:
		s.uuid, s.ours = value, true
	case key == MetadataPayload:
		s.encoding = value
	case !strings.HasPrefix(key, reservedPrefix):
		s.user[key] = value
	}
}

// plain reads an object of strings without escapes, as nearly all metadata is and as
// jsonb prints it. After anything else, of which it returns false, s is of no use.
func (s *storedMetadata) plain(doc string) bool {
	rest, ok := strings.CutPrefix(doc, "{")
	if !ok {
		return false
	}
	if rest == "}" {
		return true
	}
	for {
		var key, value string
		if key, rest, ok = plainString(rest); !ok {
			return false
		}
		if rest, ok = strings.CutPrefix(rest, ": "); !ok {
			return false
		}
		if value, rest, ok = plainString(rest); !ok {
			return false
		}
		s.put(key, value)
		if rest == "}" {
			return true
		}
		if rest, ok = strings.CutPrefix(rest, ", "); !ok {
			return false
		}
	}
}

// plainString reads a string at the beginning of text.
func plainString(text string) (value, rest string, ok bool) {
	if text, ok = strings.CutPrefix(text, `"`); !ok {
		return "", "", false
	}
	value, rest, ok = strings.Cut(text, `"`)
	return value, rest, ok && strings.IndexByte(value, '\\') < 0
}

// flatten makes a string of a JSON value: a string is itself, null is empty,
// everything else is its JSON without blanks.
func flatten(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil { // null leaves it empty
		return text
	}
	var out bytes.Buffer
	if json.Compact(&out, value) != nil {
		return string(value)
	}
	return out.String()
}

// addBinary puts what encode kept as no text. What another writer put there
// instead is left alone.
func addBinary(raw json.RawMessage, put func(key, value string)) {
	var binary map[string]string
	if json.Unmarshal(raw, &binary) != nil {
		return
	}
	for key, value := range binary {
		k, kerr := base64.StdEncoding.DecodeString(key)
		v, verr := base64.StdEncoding.DecodeString(value)
		if kerr == nil && verr == nil {
			put(string(k), string(v))
		}
	}
}

func toBase64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
