package shardpub_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/suisha-go/suisha/shardpub"
)

// Case 60: whatever the bytes, they come back, and JSON is JSON in the store.
func TestPublishedPayloadsComeBack(t *testing.T) {
	t.Parallel()
	pool := storePool(t)
	for codec, payloads := range map[string]shardpub.PayloadCodec{"json": shardpub.PayloadJSON{}, "exact": shardpub.PayloadExact{}} {
		pub := newPublisher(t, pool, shardpub.PublisherConfig{Payload: payloads})
		for name, odd := range oddPayloads() {
			topic := codec + "." + strings.ReplaceAll(name, "-", ".")
			if err := pub.Publish(topic, message.NewMessage(name, odd.payload)); err != nil {
				t.Errorf("%s: %v", topic, err)
				continue
			}
			got := messagesOf(t, pool, topic)[0]
			same := bytes.Equal(got.Payload, odd.payload)
			if odd.asJSON && codec == "json" {
				same = equalJSON(t, got.Payload, odd.payload)
			}
			if !same || got.UUID != name {
				t.Errorf("%s: %.100q came back as %q %.100q", topic, odd.payload, got.UUID, got.Payload)
			}
		}
	}
}

func TestTenMegabytesComeBack(t *testing.T) {
	t.Parallel()
	pool := storePool(t)
	pub := newPublisher(t, pool, shardpub.PublisherConfig{})
	text := strings.Repeat("0123456789abcdef", 640<<10)
	for topic, payload := range map[string]string{"text": text, "json": `{"text": "` + text + `"}`} {
		if err := pub.Publish(topic, newMessage("m1", payload, nil)); err != nil {
			t.Fatalf("%s: %v", topic, err)
		}
		if got := messagesOf(t, pool, topic)[0]; string(got.Payload) != payload {
			t.Errorf("%s came back different", topic)
		}
	}
}

func equalJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y any
	if err := errors.Join(json.Unmarshal(a, &x), json.Unmarshal(b, &y)); err != nil {
		t.Error(err)
	}
	return reflect.DeepEqual(x, y)
}

func TestPublishedJSONCanBeQueried(t *testing.T) {
	t.Parallel()
	pool := storePool(t)
	pub := newPublisher(t, pool, shardpub.PublisherConfig{})
	if err := pub.Publish("orders", newMessage("m1", `{"b":1, "a":2}`, map[string]string{"tenant": "blue"})); err != nil {
		t.Fatal(err)
	}
	var b, tenant string
	err := pool.QueryRow(t.Context(), `select data->>'b', metadata->>'tenant' from kiroku.events`).Scan(&b, &tenant)
	if err != nil || b != "1" || tenant != "blue" {
		t.Errorf("b %q, tenant %q, %v", b, tenant, err)
	}
}

func TestPublishedMetadataComesBack(t *testing.T) {
	t.Parallel()
	pool := storePool(t)
	pub := newPublisher(t, pool, shardpub.PublisherConfig{})
	sent := newMessage("\xff", "x", map[string]string{
		"name": "OrderPlaced", "correlation_id": someUUID, "nul": "a\x00b", "bad": "\xff", "": "empty", "quote": `"\`, "html": "<&>",
	})
	if err := pub.Publish("orders", sent); err != nil {
		t.Fatal(err)
	}
	if got := messagesOf(t, pool, "orders")[0]; !got.Equals(sent) {
		t.Errorf("%q %q came back as %q %q", sent.UUID, sent.Metadata, got.UUID, got.Metadata)
	}
	var column string
	if err := pool.QueryRow(t.Context(), `select correlation_id::text from kiroku.events`).Scan(&column); err != nil || column != someUUID {
		t.Errorf("correlation_id %q, %v", column, err)
	}
}
