package router

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/suisha-go/suisha/internal/outcome"
	"github.com/suisha-go/suisha/middleware"
)

// outermost is around the whole chain of every handler: it notes errors of the
// middleware within, and lets a failed publish be noted, which happens after the
// chain has returned.
func outermost(h message.HandlerFunc) message.HandlerFunc {
	marked := middleware.Mark()(h)
	return func(msg *message.Message) ([]*message.Message, error) {
		slot, ours := outcome.From(msg.Context())
		produced, err := marked(msg)
		if ours && err == nil {
			for _, p := range produced {
				p.SetContext(context.WithValue(p.Context(), originKey{}, slot))
			}
		}
		return produced, err
	}
}

// originKey finds, in a produced message's context, the slot of the delivery
// that it was produced for.
type originKey struct{}

// sharedPublisher is a handler's publisher. The Watermill router closes a
// handler's publisher when that handler stops, while another may still publish
// with it; so the Worker closes it instead, at the end.
type sharedPublisher struct{ message.Publisher }

// Publish implements message.Publisher. A failure is noted, for the dead letter
// that it may end in.
func (p sharedPublisher) Publish(topic string, messages ...*message.Message) error {
	err := p.Publisher.Publish(topic, messages...)
	if err == nil {
		return nil
	}
	for _, msg := range messages {
		if slot, ok := msg.Context().Value(originKey{}).(*outcome.Slot); ok {
			_ = slot.Mark(func(o *outcome.Outcome) { o.Err = fmt.Errorf("publish to %q: %w", topic, err) })
		}
	}
	return err
}

// Close implements message.Publisher.
func (p sharedPublisher) Close() error { return nil }

// String is the name that Watermill gives the publisher itself.
func (p sharedPublisher) String() string {
	if s, ok := p.Publisher.(fmt.Stringer); ok {
		return s.String()
	}
	return strings.TrimLeft(fmt.Sprintf("%T", p.Publisher), "*")
}

// closePublishers closes each publisher once.
func (w *Worker) closePublishers() error {
	w.mu.Lock()
	publishers := w.publishers
	w.mu.Unlock()
	closed := map[message.Publisher]bool{}
	var errs []error
	for _, p := range publishers {
		if reflect.TypeOf(p).Comparable() {
			if closed[p] {
				continue
			}
			closed[p] = true
		}
		if err := p.Close(); err != nil {
			errs = append(errs, fmt.Errorf("router: close publisher %s: %w", sharedPublisher{p}, err))
		}
	}
	return errors.Join(errs...)
}
