package shardpub

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/suisha-go/suisha/internal/outcome"
)

// Delivery is one hand-over of one event to a handler. It is in the message's
// context; the same values are metadata, for code that knows Watermill only.
type Delivery struct {
	// Subscription is the name the checkpoints are kept under.
	Subscription string
	// Category is what is subscribed to, or [AllStreams].
	Category string
	// Stream is the event's stream, with its category.
	Stream string
	// Bucket of Shards is the slice of the subscription that the stream is in.
	Bucket, Shards int
	// Attempt counts the failed deliveries of this event before this one, by
	// this worker since it got the bucket: 0, 1, 2, …
	Attempt int
	// Position is the event's place in the log of everything; Version its number
	// in its stream, from 1.
	Position, Version int64
	EventID           uuid.UUID
	EventType         string
	RecordedAt        time.Time
	// Worker is the id of this membership in the subscription.
	Worker uuid.UUID
}

type deliveryKey struct{}

// DeliveryFromContext returns the delivery that a message's context belongs to;
// false when the message did not come from a Subscriber of this package.
func DeliveryFromContext(ctx context.Context) (Delivery, bool) {
	h, ok := ctx.Value(deliveryKey{}).(*handing)
	if !ok {
		return Delivery{}, false
	}
	return h.delivery(), true
}

// handing is the context of one hand-over: the bucket's, with two values more. It is
// one allocation where context.WithValue would be four.
type handing struct {
	context.Context //nolint:containedctx // it is one
	bucket          *bucket
	entry           *entry
	attempt         int
	slot            outcome.Slot
	run             atomic.Pointer[run] // what Follow returned last
}

func newHanding(ctx context.Context, b *bucket, e *entry, attempt int) *handing {
	h := &handing{Context: ctx, bucket: b, entry: e, attempt: attempt}
	h.slot.RefuseBy(b.refuse)
	return h
}

// on puts it on a message.
func (h *handing) on(msg *message.Message) {
	h.setMetadata(msg.Metadata)
	msg.SetContext(h)
}

// delivery is made when somebody asks for it. What it reads never changes.
func (h *handing) delivery() Delivery {
	b, event := h.bucket, &h.entry.event
	return Delivery{
		Subscription: b.sub.name,
		Category:     b.sub.topic,
		Stream:       h.entry.stream,
		Bucket:       b.number,
		Shards:       b.sub.cfg.Shards,
		Attempt:      h.attempt,
		Position:     int64(event.Position),
		Version:      event.Version,
		EventID:      event.ID,
		EventType:    event.Type,
		RecordedAt:   event.RecordedAt,
		Worker:       b.sub.worker,
	}
}

// Value implements context.Context.
func (h *handing) Value(key any) any {
	if _, ok := key.(deliveryKey); ok {
		return h
	}
	if outcome.IsKey(key) {
		return &h.slot
	}
	return h.Context.Value(key)
}

// endAfter ends a message's context after the handler's time, unless that is
// zero. It begins when the message was handed out: the time before is nobody's
// fault (P-35).
func endAfter(timeout time.Duration, cancel context.CancelCauseFunc) (stop func() bool) {
	if timeout <= 0 {
		return func() bool { return false }
	}
	return time.AfterFunc(timeout, func() { cancel(ErrHandlerTimeout) }).Stop
}
