package shardpub

import (
	"fmt"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/suisha-go/suisha/internal/outcome"
	"github.com/suisha-go/suisha/kiroku"
)

// NewDeadLetterPublisher returns the publisher to give to Watermill's own
// PoisonQueue, so that it parks events in kiroku.dead_letters:
//
//	poison, err := middleware.PoisonQueue(shardpub.NewDeadLetterPublisher(), "dead_letters")
//
// Publish writes nothing. It marks the delivery that the message belongs to;
// when the message is then acked, as PoisonQueue does, the Subscriber writes the
// dead letter and the checkpoint in one statement. The topic is only recorded.
//
// Publish refuses, so that PoisonQueue hands the handler's error on and the
// message is nacked: with the cause when the delivery was cancelled by its
// Subscriber (a handler that fails because of a shutdown or a lost lease poisons
// nothing), and with [ErrNotSuisha] on a message of another Pub/Sub.
//
// It is safe for concurrent use. Close does nothing.
func NewDeadLetterPublisher() message.Publisher { return deadLetterPublisher{} }

type deadLetterPublisher struct{}

func (deadLetterPublisher) Publish(topic string, messages ...*message.Message) error {
	for _, msg := range messages {
		slot, ok := outcome.From(msg.Context())
		if !ok {
			return ErrNotSuisha
		}
		reason := poisonReason(topic, msg.Metadata)
		err := slot.Mark(func(o *outcome.Outcome) {
			o.Permanent, o.Classified, o.Reason = true, false, reason
		})
		if err != nil {
			return fmt.Errorf("shardpub: message %q is not poisoned: %w", clip(msg.UUID), err)
		}
	}
	return nil
}

func (deadLetterPublisher) Close() error { return nil }

// poisonReason says what PoisonQueue noted about the failure.
func poisonReason(topic string, m message.Metadata) kiroku.Reason {
	text := printable(m.Get(middleware.ReasonForPoisonedKey))
	reason := kiroku.Reason{
		Kind:   kiroku.Poison,
		Detail: text,
		Extra:  map[string]any{"poison_topic": printable(topic)},
	}
	if text == "" {
		reason.Detail = "published to " + printable(topic)
	} else {
		reason.Extra["last_error"] = text
	}
	for _, key := range []string{
		middleware.PoisonedHandlerKey, middleware.PoisonedTopicKey, middleware.PoisonedSubscriberKey,
	} {
		if value := m.Get(key); value != "" {
			reason.Extra[key] = printable(value)
		}
	}
	return reason
}

// printable replaces what PostgreSQL takes for no text.
func printable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
