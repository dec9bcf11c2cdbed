package shardpub

import (
	"encoding/json"
	"maps"
	"testing"

	"github.com/google/uuid"
)

// The short way reads what the long way reads, or leaves it to the long way.
func FuzzPlainMetadataIsReadLikeAny(f *testing.F) {
	for _, doc := range []string{
		`{}`, `{"a": "b"}`, `{"a": "b", "c": "d"}`, `{"a":"b"}`, `{"a": "b" }`, `{"a": "\"b"}`, `{"a": 1, "b": "c"}`, `{"a": null}`,
		`{"_watermill_message_uuid": "u", "_suisha_payload": "base64", "_suisha_x": "y", "name": "n"}`,
		`{"_watermill_message_uuid": ""}`, `{"_suisha_binary": {"AA==": "AQ=="}}`, `{"_suisha_binary": "no"}`, `{"a": "b"`, `{"a": "b", }`,
		`[]`, `"x"`, `null`, ``, `{"a": "b"}x`, `{"": ""}`, `{"a": "水車"}`,
	} {
		f.Add(doc)
	}
	f.Fuzz(func(t *testing.T, doc string) {
		var compact any
		if json.Unmarshal([]byte(doc), &compact) != nil {
			return // jsonb holds none such
		}
		if object, ok := compact.(map[string]any); ok && !storableJSON([]byte(doc)) && len(object) > 0 {
			return // nor repeated keys and broken text
		}
		got, want := decodeMetadata([]byte(doc)), decodeMetadata(nil)
		if doc != "" && doc != "null" {
			want = decodeAny([]byte(doc))
		}
		if !maps.Equal(got.user, want.user) || got.uuid != want.uuid || got.ours != want.ours || got.encoding != want.encoding {
			t.Errorf("%q: %+v, want %+v", doc, got, want)
		}
	})
}

func TestPlainMetadataIsReadTheShortWay(t *testing.T) {
	t.Parallel()
	s := decodeMetadata(nil)
	if !s.plain(`{"_watermill_message_uuid": "u", "key": "value"}`) || s.uuid != "u" || s.user["key"] != "value" {
		t.Errorf("%+v", s)
	}
}

func TestUUIDsAreWrittenAsEverywhere(t *testing.T) {
	t.Parallel()
	for range 100 {
		id := uuid.New()
		if got := string(appendUUID([]byte("x"), id)); got != "x"+id.String() {
			t.Fatalf("got %s of %s", got, id)
		}
	}
}
