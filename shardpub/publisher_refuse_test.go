package shardpub_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/shardpub"
)

// Case 61.
func TestTopicsAreRefusedBeforeAnySQL(t *testing.T) {
	t.Parallel()
	pub := newPublisher(t, noSQL{t}, shardpub.PublisherConfig{})
	for _, topic := range []string{"orders-v2", "-", "", shardpub.AllStreams, strings.Repeat("x", 600), strings.Repeat("é", 257), "a\x00", "\xff"} {
		for _, msgs := range [][]*message.Message{{message.NewMessage("m1", nil)}, nil} {
			err := pub.Publish(topic, msgs...)
			var typed *shardpub.TopicError
			if !errors.As(err, &typed) || typed.Topic != topic || len(err.Error()) > 300 {
				t.Errorf("%.20q: %v, want a short *TopicError", topic, err)
			}
		}
	}
}

func TestTopicsAreIsolated(t *testing.T) {
	t.Parallel()
	pool := storePool(t)
	pub := newPublisher(t, pool, shardpub.PublisherConfig{})
	topics := []string{"a/b", "a", "é", "a b", "a.b", "%", "'", `"`, ",", "$x", strings.Repeat("x", kiroku.MaxStreamName)}
	for _, topic := range topics {
		if err := pub.Publish(topic, message.NewMessage(topic, nil)); err != nil {
			t.Errorf("%.20q: %v", topic, err)
		}
	}
	for _, topic := range topics {
		if got := uuidsOf(messagesOf(t, pool, topic)); got != topic {
			t.Errorf("%.20q holds %.20q", topic, got)
		}
	}
}

func TestBadMessagesAreRefusedBeforeAnySQL(t *testing.T) {
	t.Parallel()
	errKey, errID := errors.New("no key"), errors.New("no id")
	is := func(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }
	key := func(err error) bool { var typed *shardpub.KeyError; return errors.As(err, &typed) }
	version := func(err error) bool { var typed *shardpub.ExpectedVersionError; return errors.As(err, &typed) }
	reserved := func(err error) bool {
		var typed *shardpub.MetadataError
		var of *shardpub.MessageError
		return errors.As(err, &typed) && errors.As(err, &of) && of.UUID == "m1"
	}
	for name, c := range map[string]struct {
		cfg  shardpub.PublisherConfig
		msgs []*message.Message
		want func(error) bool
	}{
		"long key":       {msgs: []*message.Message{keyed("m1", "x", strings.Repeat("k", 600))}, want: key},
		"odd key":        {msgs: []*message.Message{keyed("m1", "x", "\x00")}, want: key},
		"key func fails": {cfg: shardpub.PublisherConfig{Key: func(string, *message.Message) (string, error) { return "", errKey }}, msgs: []*message.Message{newMessage("m1", "x", nil)}, want: is(errKey)},
		"id func fails":  {cfg: shardpub.PublisherConfig{EventID: func(string, *message.Message) (uuid.UUID, error) { return uuid.Nil, errID }}, msgs: []*message.Message{newMessage("m1", "x", nil)}, want: is(errID)},
		"no uuid":        {cfg: shardpub.PublisherConfig{EventID: shardpub.IdempotentEventID}, msgs: []*message.Message{newMessage("", "x", nil)}, want: is(shardpub.ErrNoMessageUUID)},
		"reserved":       {msgs: []*message.Message{keyed("m0", "x", ""), newMessage("m1", "x", map[string]string{"_suisha_x": ""})}, want: reserved},
		"no version":     {msgs: []*message.Message{expecting("m1", "a", "soon")}, want: version},
		"odd spelling":   {msgs: []*message.Message{expecting("m1", "a", "+1")}, want: version},
		"negative":       {msgs: []*message.Message{expecting("m1", "a", "-1")}, want: version},
		"two versions":   {msgs: []*message.Message{expecting("m1", "a", "1"), expecting("m2", "a", "2")}, want: version},
		"no type": {cfg: shardpub.PublisherConfig{Marshaler: marshalerFunc(func() kiroku.Event {
			return kiroku.Event{Data: json.RawMessage(`{}`)}
		})}, msgs: []*message.Message{newMessage("m1", "x", nil)}, want: is(kiroku.ErrInvalid)},
		"no JSON": {cfg: shardpub.PublisherConfig{Marshaler: marshalerFunc(func() kiroku.Event {
			return kiroku.Event{Type: "t", Data: json.RawMessage(`"\u0000"`)}
		})}, msgs: []*message.Message{newMessage("m1", "x", nil)}, want: is(kiroku.ErrInvalid)},
	} {
		if err := newPublisher(t, noSQL{t}, c.cfg).Publish("orders", c.msgs...); !c.want(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type marshalerFunc func() kiroku.Event

func (f marshalerFunc) Marshal(string, *message.Message) (kiroku.Event, error) { return f(), nil }

func TestPublishOfNothingTouchesNothing(t *testing.T) {
	t.Parallel()
	if err := newPublisher(t, noSQL{t}, shardpub.PublisherConfig{}).Publish("orders"); err != nil {
		t.Error(err)
	}
}

func TestPublisherConfigErrorsComeAllAtOnce(t *testing.T) {
	t.Parallel()
	_, err := shardpub.NewPublisher(nil, shardpub.PublisherConfig{
		Marshaler: shardpub.DefaultMarshaler{}, Payload: shardpub.PayloadExact{}, LockTimeout: time.Microsecond,
	}, nil)
	for _, field := range []string{"db", "Payload", "LockTimeout"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%v does not name %s", err, field)
		}
	}
	var typed *shardpub.ConfigError
	if !errors.As(err, &typed) {
		t.Errorf("%v, want *ConfigError", err)
	}
	if err := (shardpub.PublisherConfig{LockTimeout: -time.Second}).Validate(); err == nil {
		t.Error("a negative LockTimeout passed")
	}
	if err := (shardpub.PublisherConfig{}).Validate(); err != nil {
		t.Errorf("the zero value: %v", err)
	}
}
