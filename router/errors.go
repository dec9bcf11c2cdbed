package router

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrStarted: handlers and middleware are added before Start. A running
	// Watermill router takes them too, and then misbehaves.
	ErrStarted = errors.New("router: the Worker has started: add handlers and middleware before Start")
	// ErrStopped: the Worker was stopped, or has ended. A Worker runs once: make a
	// new one.
	ErrStopped = errors.New("router: the Worker has ended: make a new one")
	// ErrRouterClosed: the Watermill router ended though nobody stopped the
	// Worker. Somebody closed it, or all of its handlers have stopped.
	ErrRouterClosed = errors.New("router: the Watermill router closed by itself")
	// ErrMiddlewareOrder is logged by Start: Watermill's Retry was added before its
	// PoisonQueue, so that an event is parked at its first error and nothing is
	// ever tried again.
	ErrMiddlewareOrder = errors.New("router: PoisonQueue runs inside Retry: add PoisonQueue first")
)

// HandlerError is what is wrong with one handler.
type HandlerError struct {
	// Handler is its name.
	Handler string
	// Err is the cause: a *shardpub.ConfigError, or what
	// shardpub.Subscriber.Subscribe returns.
	Err error
}

func (e *HandlerError) Error() string { return fmt.Sprintf("router: handler %q: %v", e.Handler, e.Err) }

// Unwrap returns the cause.
func (e *HandlerError) Unwrap() error { return e.Err }

// UnknownSubscriptionError: the Worker has no handler with this subscription.
type UnknownSubscriptionError struct {
	Subscription string
	// Known are those it has, in order.
	Known []string
}

func (e *UnknownSubscriptionError) Error() string {
	return fmt.Sprintf("router: no handler has the subscription %q; this Worker has %q", e.Subscription, e.Known)
}

// CloseTimeoutError: the Worker gave up waiting for its Watermill router to
// close: a handler that is not ours still runs, or the database does not take
// back the buckets, whose leases expire then.
type CloseTimeoutError struct {
	// After is how long it waited.
	After time.Duration
}

func (e *CloseTimeoutError) Error() string {
	return fmt.Sprintf("router: not closed after %s: a handler still runs, or the database does not answer", e.After)
}
