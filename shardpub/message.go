package shardpub

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/suisha-go/suisha/kiroku"
)

// KeyFunc returns the partition key of a message: messages of one topic and key
// are one stream. "" is no key. It must be safe for concurrent use.
type KeyFunc = func(topic string, msg *message.Message) (string, error)

// EventIDFunc returns the id of the event that a message becomes. It must be
// unique in the store. It must be safe for concurrent use.
type EventIDFunc = func(topic string, msg *message.Message) (uuid.UUID, error)

// KeyFromMetadata is the default [KeyFunc]: [MetadataKey].
func KeyFromMetadata(_ string, msg *message.Message) (string, error) {
	return msg.Metadata.Get(MetadataKey), nil
}

// eventIDSpace is the UUIDv5 namespace of IdempotentEventID.
var eventIDSpace = uuid.MustParse("5fd6b1fb-4a53-5c1d-9a0b-0b8d7f2b5a6e")

// IdempotentEventID derives the event's id from the topic and the message's
// UUID (a UUIDv5), so that a message that is published twice to one topic is
// appended once: the second call fails with kiroku's error for a duplicate
// event, and appends none of its messages. The same UUID on another topic is
// another event. It fails with [ErrNoMessageUUID] on a message without UUID.
func IdempotentEventID(topic string, msg *message.Message) (uuid.UUID, error) {
	if msg.UUID == "" {
		return uuid.Nil, ErrNoMessageUUID
	}
	// A topic holds no NUL, so no two pairs have one spelling.
	return uuid.NewSHA1(eventIDSpace, []byte(topic+"\x00"+msg.UUID)), nil
}

// envelope is how messages become events.
type envelope struct {
	key       KeyFunc
	marshaler Marshaler
	eventID   EventIDFunc // nil leaves the id to the marshaler and the store
}

func newEnvelope(key KeyFunc, marshaler Marshaler, payload PayloadCodec, eventID EventIDFunc) envelope {
	if key == nil {
		key = KeyFromMetadata
	}
	if marshaler == nil {
		marshaler = DefaultMarshaler{Payload: payload}
	}
	return envelope{key: key, marshaler: marshaler, eventID: eventID}
}

// batch is what one call appends to one stream.
type batch struct {
	stream   string
	expected string // as in MetadataExpectedVersion; "" is any
	version  kiroku.ExpectedVersion
	events   []kiroku.Event
}

// The values of MetadataExpectedVersion, besides numbers.
const (
	expectAny          = "any"
	expectNoStream     = "no_stream"
	expectStreamExists = "stream_exists"
)

// batches turns the messages of one call into what is appended, by stream. The
// messages of a stream keep their order; the streams come in the order of their
// names, which is the order in which they are locked.
func (v envelope) batches(topic string, msgs []*message.Message) ([]batch, error) {
	if err := checkTopic(topic); err != nil {
		return nil, err
	}
	byStream := map[string]*batch{}
	for _, msg := range msgs {
		stream, err := v.stream(topic, msg)
		if err != nil {
			return nil, err
		}
		event, err := v.event(topic, msg)
		if err != nil {
			return nil, &MessageError{Topic: topic, UUID: msg.UUID, Err: err}
		}
		b := byStream[stream]
		if b == nil {
			b = &batch{stream: stream}
			byStream[stream] = b
		}
		if err := b.expect(msg.Metadata.Get(MetadataExpectedVersion)); err != nil {
			return nil, err
		}
		b.events = append(b.events, event)
	}
	out := make([]batch, 0, len(byStream))
	for _, stream := range slices.Sorted(maps.Keys(byStream)) {
		out = append(out, *byStream[stream])
	}
	return out, nil
}

func (v envelope) stream(topic string, msg *message.Message) (string, error) {
	key, err := v.key(topic, msg)
	if err != nil {
		return "", &KeyError{Topic: topic, Err: err}
	}
	if key == "" {
		return topic, nil
	}
	stream := topic + "-" + key
	if len(stream) > kiroku.MaxStreamName {
		problem := fmt.Sprintf("makes a stream name of %d bytes; %d are allowed", len(stream), kiroku.MaxStreamName)
		return "", &KeyError{Topic: topic, Key: key, Problem: problem}
	}
	if !storableText(key) {
		return "", &KeyError{Topic: topic, Key: key, Problem: "is not UTF-8 without NUL"}
	}
	return stream, nil
}

func (v envelope) event(topic string, msg *message.Message) (kiroku.Event, error) {
	event, err := v.marshaler.Marshal(topic, msg)
	if err != nil || v.eventID == nil {
		return event, err
	}
	event.ID, err = v.eventID(topic, msg)
	return event, err
}

// expect adds what one more message expects of the stream; "" has no say.
func (b *batch) expect(value string) error {
	if value == "" || value == b.expected {
		return nil
	}
	if b.expected != "" {
		return &ExpectedVersionError{Stream: b.stream, Values: []string{b.expected, value}}
	}
	version, ok := parseExpected(value)
	if !ok {
		return &ExpectedVersionError{Stream: b.stream, Values: []string{value}}
	}
	b.expected, b.version = value, version
	return nil
}

// parseExpected takes numbers in their one spelling: the SQL adapter compares
// texts.
func parseExpected(value string) (v kiroku.ExpectedVersion, ok bool) {
	switch value {
	case expectAny:
		return kiroku.AnyVersion(), true
	case expectNoStream:
		return kiroku.NoStream(), true
	case expectStreamExists:
		return kiroku.StreamExists(), true
	}
	n, err := strconv.ParseInt(value, 10, 64)
	ok = err == nil && n >= 0 && strconv.FormatInt(n, 10) == value
	return kiroku.ExactVersion(n), ok
}
