package shardpub_test

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/shardpub"
)

const someUUID = "0198c0de-0000-7000-8000-000000000001"

func newMessage(id, payload string, metadata map[string]string) *message.Message {
	msg := message.NewMessage(id, []byte(payload))
	maps.Copy(msg.Metadata, metadata)
	return msg
}

// recorded is the event as a store would give it back.
func recorded(e kiroku.Event) kiroku.RecordedEvent {
	return kiroku.RecordedEvent{
		ID: uuid.MustParse(someUUID), Type: e.Type, Data: e.Data, Metadata: e.Metadata,
		CausationID: e.CausationID, CorrelationID: e.CorrelationID,
	}
}

func marshal(t *testing.T, msg *message.Message) kiroku.Event {
	t.Helper()
	e, err := shardpub.DefaultMarshaler{}.Marshal("orders", msg)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func unmarshal(t *testing.T, e kiroku.RecordedEvent) *message.Message {
	t.Helper()
	msg, err := shardpub.DefaultMarshaler{}.Unmarshal("orders", "orders-1", e)
	if err != nil {
		t.Fatal(err)
	}
	return msg
}

func TestMessagesComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	for name, msg := range map[string]*message.Message{
		"plain":           newMessage("m1", `{"a":1}`, nil),
		"any uuid":        newMessage("no uuid at all", "x", nil),
		"odd uuid":        newMessage("\xff\x00", "x", nil),
		"metadata":        newMessage("m1", "x", map[string]string{"a": "1", "": "empty key", "empty": "", "<&>": "\u2028é\"\\"}),
		"odd metadata":    newMessage("m1", "x", map[string]string{"nul": "a\x00b", "bad": "\xff", "\xfe": "key", "\x00": ""}),
		"key":             newMessage("m1", "x", map[string]string{shardpub.MetadataKey: "customer-7"}),
		"name":            newMessage("m1", "x", map[string]string{"name": "OrderPlaced"}),
		"default name":    newMessage("m1", "x", map[string]string{"name": shardpub.DefaultEventType}),
		"empty name":      newMessage("m1", "x", map[string]string{"name": ""}),
		"odd name":        newMessage("m1", "x", map[string]string{"name": "a\x00"}),
		"correlation":     newMessage("m1", "x", map[string]string{"correlation_id": strings.ToUpper(someUUID), "causation_id": "urn:uuid:" + someUUID}),
		"no uuids":        newMessage("m1", "x", map[string]string{"correlation_id": "abc", "causation_id": ""}),
		"tracing":         newMessage("m1", "x", map[string]string{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tracestate": "rojo=00f0,congo=t61"}),
		"other stores":    newMessage("m1", "x", map[string]string{"_watermill_delayed_for": "1s", "suisha": "x", "_suisha": "y"}),
		"nil everything":  {UUID: "m1"},
		"binary's marker": newMessage("m1", "\xff", map[string]string{"payload": "base64", "binary": `{"YQ==":"YQ=="}`}),
	} {
		got := unmarshal(t, recorded(marshal(t, msg)))
		if !got.Equals(msg) {
			t.Errorf("%s: %v %q %q came back as %v %q %q", name, msg.UUID, msg.Metadata, msg.Payload, got.UUID, got.Metadata, got.Payload)
		}
	}
}

func TestEventHoldsWhatOtherReadersLookFor(t *testing.T) {
	t.Parallel()
	e := marshal(t, newMessage("m1", `{"a":1}`, map[string]string{
		"name": "OrderPlaced", "correlation_id": someUUID, "causation_id": someUUID, "tenant": "blue",
	}))
	if e.ID != uuid.Nil || e.Type != "OrderPlaced" || string(e.Data) != `{"a":1}` {
		t.Errorf("id %v, type %q, data %s", e.ID, e.Type, e.Data)
	}
	want := uuid.NullUUID{UUID: uuid.MustParse(someUUID), Valid: true}
	if e.CorrelationID != want || e.CausationID != want {
		t.Errorf("correlation %v, causation %v", e.CorrelationID, e.CausationID)
	}
	var metadata map[string]string
	if err := json.Unmarshal(e.Metadata, &metadata); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(metadata, map[string]string{
		"correlation_id": someUUID, "causation_id": someUUID, "tenant": "blue", shardpub.MetadataMessageUUID: "m1",
	}) {
		t.Errorf("metadata %v", metadata)
	}
	e = marshal(t, newMessage("m1", "x", nil))
	if e.Type != shardpub.DefaultEventType || e.CorrelationID.Valid || e.CausationID.Valid {
		t.Errorf("type %q, correlation %v, causation %v", e.Type, e.CorrelationID, e.CausationID)
	}
	if err := json.Unmarshal(e.Metadata, &metadata); err != nil || metadata[shardpub.MetadataPayload] != "base64" {
		t.Errorf("base64 without its mark: %s", e.Metadata)
	}
}

func TestMessageWithoutUUIDHasTheEventsID(t *testing.T) {
	t.Parallel()
	if got := unmarshal(t, recorded(marshal(t, newMessage("", "x", nil)))); got.UUID != someUUID {
		t.Errorf("UUID %q", got.UUID)
	}
}

func TestForeignMetadataIsFlattened(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 12_000) + strings.Repeat("]", 12_000)
	for raw, want := range map[string]map[string]string{
		``:                                   {},
		`null`:                               {},
		`{}`:                                 {},
		`{"a": 1, "b": -1.50, "c": 1e20}`:    {"a": "1", "b": "-1.50", "c": "1e20"},
		`{"t": true, "n": null, "s": "x"}`:   {"t": "true", "n": "", "s": "x"},
		`{"o": {"b": [1, "x"]}, "a": [ ]}`:   {"o": `{"b":[1,"x"]}`, "a": "[]"},
		`[1, 2]`:                             {shardpub.MetadataForeign: "[1, 2]"},
		`"text"`:                             {shardpub.MetadataForeign: `"text"`},
		`7`:                                  {shardpub.MetadataForeign: "7"},
		`{"d": ` + deep + `}`:                {shardpub.MetadataForeign: `{"d": ` + deep + `}`},
		`{"_suisha_bucket": 3, "a": "b"}`:    {"a": "b"},
		`{"_suisha_binary": 3}`:              {},
		`{"_suisha_binary": {"*": "*"}}`:     {},
		`{"name": "Bob"}`:                    {}, // the type is the name
		`{"correlation_id": 5}`:              {"correlation_id": "5"},
		`{"_watermill_message_uuid": ["x"]}`: {},
	} {
		got := unmarshal(t, kiroku.RecordedEvent{
			ID: uuid.MustParse(someUUID), Type: "OrderPlaced", Data: []byte(`{}`), Metadata: []byte(raw),
		})
		want["name"] = "OrderPlaced"
		if !maps.Equal(map[string]string(got.Metadata), want) {
			t.Errorf("%.40s: %.200q, want %.200q", raw, got.Metadata, want)
		}
	}
}

func TestForeignEventHasItsTypeAsNameAndItsColumns(t *testing.T) {
	t.Parallel()
	id := uuid.NullUUID{UUID: uuid.MustParse(someUUID), Valid: true}
	got := unmarshal(t, kiroku.RecordedEvent{
		ID: id.UUID, Type: shardpub.DefaultEventType, Data: []byte(`{"a": 1}`), CausationID: id, CorrelationID: id,
	})
	want := map[string]string{"name": shardpub.DefaultEventType, "causation_id": someUUID, "correlation_id": someUUID}
	if !maps.Equal(map[string]string(got.Metadata), want) || got.UUID != someUUID || string(got.Payload) != `{"a": 1}` {
		t.Errorf("%v %v %s", got.UUID, got.Metadata, got.Payload)
	}
}

func TestEventThatTheCodecRefusesIsATypedError(t *testing.T) {
	t.Parallel()
	_, err := shardpub.DefaultMarshaler{}.Unmarshal("orders", "orders-1", kiroku.RecordedEvent{
		Type: "x", Data: []byte(`{}`), Metadata: []byte(`{"_suisha_payload": "base64"}`),
	})
	var typed *shardpub.PayloadError
	if !errors.As(err, &typed) {
		t.Errorf("%v, want a *PayloadError", err)
	}
}

func TestReservedMetadataIsRefused(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"_suisha_payload", "_suisha_binary", "_suisha_mine", "_suisha_", shardpub.MetadataMessageUUID} {
		_, err := shardpub.DefaultMarshaler{}.Marshal("orders", newMessage("m1", "x", map[string]string{key: "1"}))
		var typed *shardpub.MetadataError
		if !errors.As(err, &typed) || typed.Key != key {
			t.Errorf("%s: %v, want a *MetadataError", key, err)
		}
	}
}

func TestDeliveredMessageCanBePublishedOn(t *testing.T) {
	t.Parallel()
	msg := newMessage("m1", "x", map[string]string{
		shardpub.MetadataSubscription: "s", shardpub.MetadataBucket: "1", shardpub.MetadataShards: "8",
		shardpub.MetadataAttempt: "0", shardpub.MetadataPosition: "5", shardpub.MetadataStream: "orders-1",
		shardpub.MetadataVersion: "2", shardpub.MetadataEventID: someUUID, shardpub.MetadataEventType: "t",
		shardpub.MetadataRecordedAt: "now", shardpub.MetadataWorker: someUUID, shardpub.MetadataForeign: "[]",
		shardpub.MetadataExpectedVersion: "3", "kept": "yes",
	})
	got := unmarshal(t, recorded(marshal(t, msg)))
	if !maps.Equal(map[string]string(got.Metadata), map[string]string{"kept": "yes"}) {
		t.Errorf("published on as %v", got.Metadata)
	}
	if len(msg.Metadata) != 14 {
		t.Errorf("the message itself was changed: %v", msg.Metadata)
	}
}

func TestIdempotentEventID(t *testing.T) {
	t.Parallel()
	id := func(topic, uuid string) uuid.UUID {
		got, err := shardpub.IdempotentEventID(topic, newMessage(uuid, "", nil))
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	a := id("orders", "1")
	if a != id("orders", "1") || a == id("orders", "2") || a == id("order", "s1") || a.Version() != 5 {
		t.Errorf("%v is no UUIDv5 of topic and message", a)
	}
	if _, err := shardpub.IdempotentEventID("orders", newMessage("", "", nil)); !errors.Is(err, shardpub.ErrNoMessageUUID) {
		t.Errorf("%v, want ErrNoMessageUUID", err)
	}
}

func FuzzMessage(f *testing.F) {
	f.Add("m1", "key", "value", []byte("x"))
	f.Add("", "name", "message", []byte(nil))
	f.Add("\xff", "name", "\x00", []byte(`{"a":1}`))
	f.Add("m", "correlation_id", someUUID, []byte(`"\u0000"`))
	f.Fuzz(func(t *testing.T, id, key, value string, payload []byte) {
		msg := newMessage(id, string(payload), map[string]string{key: value})
		e, err := shardpub.DefaultMarshaler{}.Marshal("orders", msg)
		if err != nil {
			if strings.HasPrefix(key, "_suisha_") || key == shardpub.MetadataMessageUUID {
				return
			}
			t.Fatal(err)
		}
		if !utf8.Valid(e.Metadata) || kiroku.CheckJSON(e.Metadata) != nil || kiroku.CheckJSON(e.Data) != nil {
			t.Fatalf("the store cannot hold %s, %s", e.Metadata, e.Data)
		}
		got := unmarshal(t, recorded(e))
		if id == "" {
			msg.UUID = someUUID
		}
		if key == shardpub.MetadataExpectedVersion || strings.HasPrefix(key, "_suisha_") {
			delete(msg.Metadata, key)
		}
		if !got.Equals(msg) {
			t.Fatalf("%q %q %q came back as %q %q %q", msg.UUID, msg.Metadata, msg.Payload, got.UUID, got.Metadata, got.Payload)
		}
	})
}
