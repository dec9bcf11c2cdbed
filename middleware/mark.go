package middleware

import (
	"fmt"
	"runtime/debug"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/suisha-go/suisha/internal/outcome"
	"github.com/suisha-go/suisha/kiroku"
)

// Mark notes what each call of the handler returned, so that the Subscriber
// knows more than Ack or Nack: [Permanent] and [RetryAfter] are obeyed, and a
// dead letter's reason holds the last error's text.
//
// router.Worker installs it. On a plain Watermill router add it once, or any of
// [Retry] and [DeadLetter], which do the same; twice does no harm. The error is
// returned as it is and a panic goes on, as the value it was.
func Mark() message.HandlerMiddleware { return marking(nil, nil) }

// classifier tells whether an error asks for a dead letter.
type classifier = func(error) (reason string, ok bool)

// marking is what all middleware of this package is. prepare changes the
// outcome before the call; both may be nil.
func marking(prepare func(*outcome.Outcome), classify classifier) message.HandlerMiddleware {
	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			slot, ours := outcome.From(msg.Context())
			if !ours {
				return h(msg)
			}
			slot.Clear()
			if prepare != nil {
				_ = slot.Mark(prepare) // refused: the delivery counts for nothing
			}
			return call(h, msg, slot, classify)
		}
	}
}

// call runs the handler once and notes what came of it. That the delivery may
// not be marked any more is no error of the handler.
func call(h message.HandlerFunc, msg *message.Message, slot *outcome.Slot, classify classifier) ([]*message.Message, error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if v := recover(); v != nil {
			_ = slot.Mark(note(&PanicError{Value: v, Stack: debug.Stack()}, classify))
			panic(v)
		}
	}()
	produced, err := h(msg)
	returned = true
	_ = slot.Mark(note(err, classify))
	return produced, err
}

// note makes of what one call returned a change of the outcome. It only adds:
// what an inner middleware has noted of the same call stays, also when something
// between has made another error of it, or none (a PoisonQueue).
func note(err error, classify classifier) func(*outcome.Outcome) {
	if err == nil {
		return func(o *outcome.Outcome) { o.Called = true }
	}
	permanent := isPermanent(err)
	reason := kiroku.Reason{Kind: kiroku.Poison, Detail: err.Error()}
	classified := false
	if !permanent && classify != nil {
		var why string
		if why, classified = classify(err); classified && why != "" {
			reason.Detail = why
		}
	}
	after, hasAfter := retryAfter(err)
	return func(o *outcome.Outcome) {
		o.Called = true
		o.Err = bare(err)
		switch {
		case permanent:
			o.Permanent, o.Classified, o.Reason = true, false, reason
		case classified && !o.Permanent:
			o.Permanent, o.Classified, o.Reason = true, true, reason
		}
		if hasAfter {
			o.HasAfter, o.After = true, after
		}
	}
}

// PanicError is a handler's panic as an error. The panic itself goes on; this
// is what observers of retries and dead letters see.
type PanicError struct {
	// Value is what panic was called with.
	Value any
	// Stack is the goroutine's stack at that moment.
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
