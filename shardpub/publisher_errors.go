package shardpub

import (
	"errors"
	"fmt"
	"strings"

	"github.com/suisha-go/suisha/kiroku"
)

const (
	// stateConflict is what publish_append.sql raises, and nothing else in it.
	stateConflict = "22023"
	stateCanceled = "57014"
)

var (
	// ErrPublisherClosed: the Publisher was closed; make a new one.
	ErrPublisherClosed = errors.New("shardpub: publisher closed")
	// ErrNotSuisha: the message did not come from a Subscriber of this package, or
	// is a copy that lost its context, so there is no delivery to mark.
	ErrNotSuisha = errors.New("shardpub: the message is not a delivery of a suisha subscriber")
	// ErrNoMessageUUID: [IdempotentEventID] needs a message UUID.
	ErrNoMessageUUID = errors.New("shardpub: the message has no UUID to derive an event id from")
	// ErrSQLSubscriber: the adapter of [NewSQLSchema] serves publishers only.
	ErrSQLSubscriber = errors.New("shardpub: watermill-sql's Subscriber cannot read the event store; use shardpub.NewSubscriber")
)

// TopicError: the topic cannot be a category. Nothing was sent to the server.
type TopicError struct {
	Topic string
	// Problem says what is wrong with it.
	Problem string
}

func (e *TopicError) Error() string {
	return fmt.Sprintf("shardpub: topic %q: %s", clip(e.Topic), e.Problem)
}

// KeyError: the key of a message cannot be part of a stream's name, or
// PublisherConfig.Key failed. Nothing was sent to the server.
type KeyError struct {
	Topic, Key string
	// Problem says what is wrong with the key; empty when Err does.
	Problem string
	// Err is what PublisherConfig.Key returned.
	Err error
}

func (e *KeyError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("shardpub: key of a message for %q: %v", clip(e.Topic), e.Err)
	}
	return fmt.Sprintf("shardpub: key %q of a message for %q: %s", clip(e.Key), clip(e.Topic), e.Problem)
}

// Unwrap returns what PublisherConfig.Key returned.
func (e *KeyError) Unwrap() error { return e.Err }

// ExpectedVersionError: the messages of one call expect different versions of a
// stream, or something that is no version. Nothing was sent to the server.
type ExpectedVersionError struct {
	Stream string
	// Values are the expectations, as written in [MetadataExpectedVersion]: one
	// that cannot be read, or two that differ.
	Values []string
}

func (e *ExpectedVersionError) Error() string {
	if len(e.Values) == 1 {
		return fmt.Sprintf("shardpub: stream %q: expected version %q: write any, no_stream, stream_exists or a number",
			clip(e.Stream), clip(e.Values[0]))
	}
	return fmt.Sprintf("shardpub: stream %q: messages of one call expect %s; publish them one by one",
		clip(e.Stream), clip(strings.Join(e.Values, " and ")))
}

// MetadataError: the message carries a metadata key that this package writes
// itself. Nothing was sent to the server.
type MetadataError struct{ Key string }

func (e *MetadataError) Error() string {
	return fmt.Sprintf("shardpub: metadata key %q is reserved; choose one that does not start with %q and is not %q",
		clip(e.Key), reservedPrefix, MetadataMessageUUID)
}

// PayloadError: the data of an event is not what its metadata says.
type PayloadError struct {
	// Encoding is what the metadata says was done to the payload.
	Encoding string
	Err      error
}

func (e *PayloadError) Error() string {
	return fmt.Sprintf("shardpub: payload in encoding %q: %v", clip(e.Encoding), e.Err)
}

// Unwrap returns the cause.
func (e *PayloadError) Unwrap() error { return e.Err }

// PayloadTooLargeError: the payload does not fit into one event. Nothing was
// sent to the server.
type PayloadTooLargeError struct {
	// Size and Limit are in bytes.
	Size, Limit int
}

func (e *PayloadTooLargeError) Error() string {
	return fmt.Sprintf("shardpub: payload of %d bytes: an event takes %d at most; store it elsewhere and publish where", e.Size, e.Limit)
}

// MessageError: one message of a call could not be made into an event. Nothing
// was sent to the server.
type MessageError struct {
	Topic string
	// UUID is the message's.
	UUID string
	Err  error
}

func (e *MessageError) Error() string {
	return fmt.Sprintf("shardpub: message %q for %q: %v", clip(e.UUID), clip(e.Topic), e.Err)
}

// Unwrap returns the cause.
func (e *MessageError) Unwrap() error { return e.Err }

// IsSQLConflict reports whether a publish through [NewSQLSchema] failed because
// a stream is not as [MetadataExpectedVersion] says, or is deleted. The error's
// text says which stream, and what it is. Other errors of the server are in the
// chain as *pgconn.PgError.
func IsSQLConflict(err error) bool { return stateOf(err) == stateConflict }

// clip keeps what users wrote from filling a log.
func clip(s string) string {
	const most = 100
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// checkTopic tells whether events can be published to the topic.
func checkTopic(topic string) error {
	switch {
	case topic == "":
		return &TopicError{Topic: topic, Problem: "is empty; name a category"}
	case topic == AllStreams:
		return &TopicError{Topic: topic, Problem: "is the log of everything; publish to a category"}
	case strings.Contains(topic, "-"):
		return &TopicError{Topic: topic, Problem: `holds "-", which ends a category's name; write "_" instead`}
	case len(topic) > kiroku.MaxStreamName:
		return &TopicError{Topic: topic, Problem: fmt.Sprintf("has %d bytes; %d are allowed", len(topic), kiroku.MaxStreamName)}
	case !storableText(topic):
		return &TopicError{Topic: topic, Problem: "is not UTF-8 without NUL"}
	}
	return nil
}
