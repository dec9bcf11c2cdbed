// Package outcome carries what became of one call of a handler from the
// middleware that saw it to the subscriber that settles the delivery. A source
// sees Ack or Nack, never the error.
package outcome

import (
	"context"
	"sync"
	"time"

	"github.com/suisha-go/suisha/kiroku"
)

// Outcome is what the last call of the handler left behind.
type Outcome struct {
	// Called says that a marking middleware saw the call return.
	Called bool
	// Err is the handler's error, or the panic as an error; nil for success.
	Err error
	// Permanent asks for a dead letter at once; Reason says why.
	Permanent bool
	Reason    kiroku.Reason
	// Classified is Permanent by a classifier: Permanent(err) outranks it.
	Classified bool
	// After, if HasAfter, is the delay the handler asked for.
	After    time.Duration
	HasAfter bool
	// Policy, if set, replaces the subscription's retry policy.
	Policy *kiroku.RetryPolicy
}

// Slot holds the outcome of one delivery. The zero value is ready. It is safe for
// concurrent use.
type Slot struct {
	mu      sync.Mutex
	outcome Outcome
	frozen  bool
	refuse  func() error
}

// NewSlot makes the slot of one delivery. refuse, if not nil, returns an error
// once the delivery was cancelled by its source: nothing is marked from then on.
func NewSlot(refuse func() error) *Slot { return &Slot{refuse: refuse} }

// RefuseBy is what NewSlot does, for a slot that is part of something. Call it
// before anybody else knows the slot.
func (s *Slot) RefuseBy(refuse func() error) { s.refuse = refuse }

// Clear forgets the verdict of an earlier call, at the start of a call. The
// policy stays: it belongs to the handler, not to the call.
func (s *Slot) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.frozen {
		s.outcome = Outcome{Policy: s.outcome.Policy}
	}
}

// Mark changes the outcome. It returns why it may not: the delivery was
// cancelled by its source, or is settled.
func (s *Slot) Mark(change func(*Outcome)) error {
	if s.refuse != nil {
		if err := s.refuse(); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.frozen {
		return ErrSettled
	}
	change(&s.outcome)
	return nil
}

// Freeze ends the marking, at the first Ack or Nack, and returns the outcome.
func (s *Slot) Freeze() Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frozen = true
	return s.outcome
}

type key struct{}

// With puts a slot into a message's context.
func With(ctx context.Context, s *Slot) context.Context {
	return context.WithValue(ctx, key{}, s)
}

// IsKey tells a context of its own kind that its slot is asked for.
func IsKey(k any) bool {
	_, ok := k.(key)
	return ok
}

// From finds the slot of a message; false on a message that is not ours.
func From(ctx context.Context) (*Slot, bool) {
	s, ok := ctx.Value(key{}).(*Slot)
	return s, ok
}
