package shardpub_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/suisha-go/suisha/internal/outcome"
	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/shardpub"
)

var errHandler = errors.New("no such customer\x00\xff")

// runPoisonQueue runs a failing handler under Watermill's own PoisonQueue.
func runPoisonQueue(t *testing.T, msg *message.Message) error {
	t.Helper()
	poison, err := middleware.PoisonQueue(shardpub.NewDeadLetterPublisher(), "graveyard")
	if err != nil {
		t.Fatal(err)
	}
	_, err = poison(func(*message.Message) ([]*message.Message, error) { return nil, errHandler })(msg)
	return err
}

func TestStockPoisonQueueMarksTheDelivery(t *testing.T) {
	t.Parallel()
	slot := outcome.NewSlot(nil)
	msg := newMessage("m1", "x", nil)
	msg.SetContext(outcome.With(t.Context(), slot))
	if err := runPoisonQueue(t, msg); err != nil {
		t.Fatalf("%v, want an ack", err)
	}
	o := slot.Freeze()
	if !o.Permanent || o.Classified || o.Reason.Kind != kiroku.Poison {
		t.Errorf("outcome %+v", o)
	}
	const text = "no such customer\ufffd\ufffd"
	if o.Reason.Detail != text || o.Reason.Extra["last_error"] != text || o.Reason.Extra["poison_topic"] != "graveyard" {
		t.Errorf("reason %+v", o.Reason)
	}
	raw, err := o.Reason.MarshalJSON()
	if err != nil || kiroku.CheckJSON(raw) != nil {
		t.Errorf("the store cannot hold the reason %s, %v", raw, err)
	}
}

func TestDeadLetterKeepsWhatPoisonQueueNoted(t *testing.T) {
	t.Parallel()
	slot := outcome.NewSlot(nil)
	msg := newMessage("m1", "x", map[string]string{
		middleware.ReasonForPoisonedKey: "bad", middleware.PoisonedHandlerKey: "h",
		middleware.PoisonedTopicKey: "orders", middleware.PoisonedSubscriberKey: "s",
	})
	msg.SetContext(outcome.With(t.Context(), slot))
	pub := shardpub.NewDeadLetterPublisher()
	if err := errors.Join(pub.Publish("graveyard", msg), pub.Close()); err != nil {
		t.Fatal(err)
	}
	extra := slot.Freeze().Reason.Extra
	for key, want := range map[string]string{"handler_poisoned": "h", "topic_poisoned": "orders", "subscriber_poisoned": "s"} {
		if extra[key] != want {
			t.Errorf("%s is %v, want %s", key, extra[key], want)
		}
	}
}

func TestDeadLetterWithoutAReasonNamesTheTopic(t *testing.T) {
	t.Parallel()
	slot := outcome.NewSlot(nil)
	msg := newMessage("m1", "x", nil)
	msg.SetContext(outcome.With(t.Context(), slot))
	if err := shardpub.NewDeadLetterPublisher().Publish("graveyard", msg); err != nil {
		t.Fatal(err)
	}
	if got := slot.Freeze().Reason.Summary(); got != "poison: published to graveyard" {
		t.Errorf("summary %q", got)
	}
}

// A shutdown must not poison what is in flight.
func TestCancelledDeliveryIsNotPoisoned(t *testing.T) {
	t.Parallel()
	errDrain := errors.New("draining")
	ctx, cancel := context.WithCancelCause(t.Context())
	slot := outcome.NewSlot(func() error { return context.Cause(ctx) })
	msg := newMessage("m1", "x", nil)
	msg.SetContext(outcome.With(ctx, slot))
	cancel(errDrain)
	if err := runPoisonQueue(t, msg); !errors.Is(err, errDrain) || !errors.Is(err, errHandler) {
		t.Errorf("%v, want the handler's error and the cause", err)
	}
	if slot.Freeze().Permanent {
		t.Error("the delivery is marked")
	}
}

func TestSettledDeliveryIsNotPoisoned(t *testing.T) {
	t.Parallel()
	slot := outcome.NewSlot(nil)
	slot.Freeze()
	msg := newMessage("m1", "x", nil)
	msg.SetContext(outcome.With(t.Context(), slot))
	if err := runPoisonQueue(t, msg); !errors.Is(err, outcome.ErrSettled) {
		t.Errorf("%v, want ErrSettled", err)
	}
}

func TestForeignMessageIsNotPoisoned(t *testing.T) {
	t.Parallel()
	if err := runPoisonQueue(t, newMessage("m1", "x", nil)); !errors.Is(err, shardpub.ErrNotSuisha) || !errors.Is(err, errHandler) {
		t.Errorf("%v, want the handler's error and ErrNotSuisha", err)
	}
}
