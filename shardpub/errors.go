package shardpub

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/suisha-go/suisha/kiroku"
)

var (
	// ErrSubscriberClosed: the Subscriber was closed; make a new one.
	ErrSubscriberClosed = errors.New("shardpub: subscriber closed")
	// ErrNodeClosed: the Node was closed; make a new one.
	ErrNodeClosed = errors.New("shardpub: node closed")
	// ErrHandlerTimeout is the cause of a message context that outlived
	// SubscriberConfig.HandlerTimeout. The delivery counts as a failed attempt
	// once the handler gives up.
	ErrHandlerTimeout = errors.New("shardpub: handler timeout")
)

// ConfigError is one option that cannot be worked with. Constructors return all
// of them at once, joined.
type ConfigError struct {
	// Field is the option's name, with the struct's name before it.
	Field string
	// Value is what it was.
	Value any
	// Cure says what to write instead.
	Cure string
}

func (e *ConfigError) Error() string {
	value := e.Value
	switch value {
	case nil:
		value = "not set"
	case "":
		value = "empty"
	}
	return fmt.Sprintf("%s is %v: %s", e.Field, value, e.Cure)
}

// ConnectError: the server could not be reached before StartTimeout.
type ConnectError struct {
	// Subscription is what was to be started.
	Subscription string
	// After is how long it was tried.
	After time.Duration
	// Err is the last failure.
	Err error
}

func (e *ConnectError) Error() string {
	return fmt.Sprintf("shardpub: %q could not start: no answer from PostgreSQL in %s: %v", e.Subscription, e.After.Round(time.Millisecond), e.Err)
}

// Unwrap returns the last failure.
func (e *ConnectError) Unwrap() error { return e.Err }

// DrainError: a handler was still running when its bucket had to go. The bucket
// was not released: it runs elsewhere when its lease has expired.
type DrainError struct {
	Subscription string
	Bucket       int
	Stream       string
	Position     kiroku.Position
	// Since is when the handler was called.
	Since time.Time
}

func (e *DrainError) Error() string {
	return fmt.Sprintf("shardpub: %q bucket %d: the handler of %s at position %d, called at %s, outlived its drain timeout; the bucket was not released",
		e.Subscription, e.Bucket, e.Stream, e.Position, e.Since.Format(time.RFC3339Nano))
}

// HookError: a hook panicked, or a bucket that goes waits for it longer than for
// a handler.
type HookError struct {
	Subscription string
	Bucket       int
	// Hook is the option's name: "OnAssigned", "OnRevoked", "Observe".
	Hook string
	Err  error
}

func (e *HookError) Error() string {
	return fmt.Sprintf("shardpub: %q bucket %d: %s %v", e.Subscription, e.Bucket, e.Hook, e.Err)
}

// Unwrap returns what happened.
func (e *HookError) Unwrap() error { return e.Err }

// BucketError: something failed for one bucket. The bucket goes on, or says
// otherwise in Status.
type BucketError struct {
	Subscription string
	Bucket       int
	// Doing says what failed: "load checkpoint", "write dead letter", ….
	Doing string
	Err   error
}

func (e *BucketError) Error() string {
	return fmt.Sprintf("shardpub: %q bucket %d: %s: %v", e.Subscription, e.Bucket, e.Doing, e.Err)
}

// Unwrap returns the failure.
func (e *BucketError) Unwrap() error { return e.Err }

// BeyondHeadError: a bucket's checkpoint lies beyond the end of the log, so the
// log lost commits since (a promoted standby, a restored dump). The bucket
// stops until an operator resets the checkpoint.
type BeyondHeadError struct {
	Checkpoint, Head kiroku.Position
}

func (e *BeyondHeadError) Error() string {
	return fmt.Sprintf("checkpoint %d lies beyond the head %d: the log lost commits; reset the subscription's checkpoints while no worker runs", e.Checkpoint, e.Head)
}

// HistoryError: the log is not the one that was being read (a promoted standby
// that lost commits, a restored dump, another server version). Every bucket
// restarts from its checkpoint.
type HistoryError struct {
	// Problem says what differs.
	Problem string
	// Position is where it was noticed.
	Position kiroku.Position
	// Event is the event that was read there before, if one was.
	Event uuid.UUID
}

func (e *HistoryError) Error() string {
	return fmt.Sprintf("shardpub: the log changed under position %d: %s; buckets restart from their checkpoints", e.Position, e.Problem)
}

// ReadError: the log could not be read. It is tried again.
type ReadError struct {
	After kiroku.Position
	Err   error
}

func (e *ReadError) Error() string {
	return fmt.Sprintf("shardpub: read the log after position %d: %v", e.After, e.Err)
}

// Unwrap returns the failure.
func (e *ReadError) Unwrap() error { return e.Err }

// CheckpointError: checkpoints could not be written. It is tried again.
type CheckpointError struct{ Err error }

func (e *CheckpointError) Error() string {
	return fmt.Sprintf("shardpub: write checkpoints: %v", e.Err)
}

// Unwrap returns the failure.
func (e *CheckpointError) Unwrap() error { return e.Err }

// SessionError: the session's connection could not be had or was lost. It is
// tried again; meanwhile new events are found by polling.
type SessionError struct{ Err error }

func (e *SessionError) Error() string { return fmt.Sprintf("shardpub: %v", e.Err) }

// Unwrap returns the failure.
func (e *SessionError) Unwrap() error { return e.Err }
