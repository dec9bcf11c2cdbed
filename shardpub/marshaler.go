package shardpub

import (
	"maps"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/suisha-go/suisha/kiroku"
)

// DefaultEventType is the type of events whose message has no name.
const DefaultEventType = "message"

// Marshaler makes events of the messages that are published. Implementations
// must be safe for concurrent use and must not keep or change the message.
type Marshaler interface {
	// Marshal returns the event for a message. An ID is only set to choose the
	// event's id; PublisherConfig.EventID outranks it. Data must be JSON that
	// PostgreSQL's jsonb takes.
	Marshal(topic string, msg *message.Message) (kiroku.Event, error)
}

// Unmarshaler makes messages of the events that are delivered. Implementations
// must be safe for concurrent use.
type Unmarshaler interface {
	// Unmarshal returns a fresh message for an event: it is called again for each
	// delivery, with a copy of the event that the message may have. category is the
	// stream's. The Subscriber adds context and delivery metadata. An error parks the
	// event as a dead letter of kind [kiroku.InvalidPayload].
	Unmarshal(category, stream string, e kiroku.RecordedEvent) (*message.Message, error)
}

// DefaultMarshaler is the mapping between messages and events. The zero value
// is ready.
//
//   - The payload is the event's data, under Payload.
//   - Metadata is a JSON object of strings and comes back exactly, also where it
//     is no valid text. The metadata of other writers is flattened: null becomes
//     the empty string, other values their JSON; an object is never needed.
//   - The message's UUID is kept in metadata and comes back; it is not the
//     event's id. A message without UUID is delivered with the event's id.
//   - Metadata "name" is the event's type, [DefaultEventType] without one. On
//     delivery, events of other writers have their type as name, always.
//   - Metadata "correlation_id" and "causation_id" also fill kiroku's columns
//     when they are UUIDs, and are filled from them when they are absent.
type DefaultMarshaler struct {
	// Payload defaults to [PayloadJSON].
	Payload PayloadCodec
}

func (d DefaultMarshaler) codec() PayloadCodec {
	if d.Payload == nil {
		return PayloadJSON{}
	}
	return d.Payload
}

// Marshal implements [Marshaler]. It fails with [*MetadataError] for metadata
// under reserved keys, and as the codec does. The delivery metadata of a message
// that came from a Subscriber is dropped.
func (d DefaultMarshaler) Marshal(_ string, msg *message.Message) (kiroku.Event, error) {
	if err := checkMetadata(msg.Metadata); err != nil {
		return kiroku.Event{}, err
	}
	data, encoding, err := d.codec().Encode(msg.Payload)
	if err != nil {
		return kiroku.Event{}, err
	}
	user := maps.Clone(msg.Metadata)
	delete(user, MetadataExpectedVersion)
	eventType := DefaultEventType
	// A name that is the default type stays in the metadata: that tells it from
	// no name at all.
	if name := user[MetadataName]; name != "" && name != DefaultEventType && storableText(name) {
		eventType = name
		delete(user, MetadataName)
	}
	metadata, err := storedMetadata{user: user, uuid: msg.UUID, encoding: encoding}.encode()
	if err != nil {
		return kiroku.Event{}, err
	}
	return kiroku.Event{
		Type:          eventType,
		Data:          data,
		Metadata:      metadata,
		CausationID:   parseUUID(msg.Metadata[MetadataCausationID]),
		CorrelationID: parseUUID(msg.Metadata[MetadataCorrelationID]),
	}, nil
}

// Unmarshal implements [Unmarshaler]. It fails as the codec does, never because
// of metadata.
func (d DefaultMarshaler) Unmarshal(_, _ string, e kiroku.RecordedEvent) (*message.Message, error) {
	stored := decodeMetadata(e.Metadata)
	payload, err := d.codec().Decode(e.Data, stored.encoding)
	if err != nil {
		return nil, err
	}
	id := stored.uuid
	if id == "" {
		id = e.ID.String()
	}
	msg := message.NewMessage(id, payload)
	msg.Metadata = stored.user
	_, named := msg.Metadata[MetadataName]
	if !stored.ours || !named && e.Type != DefaultEventType {
		msg.Metadata[MetadataName] = e.Type
	}
	fillUUID(msg.Metadata, MetadataCausationID, e.CausationID)
	fillUUID(msg.Metadata, MetadataCorrelationID, e.CorrelationID)
	return msg, nil
}

func parseUUID(s string) uuid.NullUUID {
	id, err := uuid.Parse(s)
	return uuid.NullUUID{UUID: id, Valid: err == nil}
}

func fillUUID(m message.Metadata, key string, id uuid.NullUUID) {
	if _, ok := m[key]; !ok && id.Valid {
		m[key] = id.UUID.String()
	}
}
