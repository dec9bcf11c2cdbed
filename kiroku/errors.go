package kiroku

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrConflict is matched by every error that says that an append's expectation
// about its stream did not hold: [VersionConflictError], [StreamNotFoundError],
// [StreamExistsError]. Nothing was written; reload, decide, append again.
var ErrConflict = errors.New("kiroku: expectation about a stream not met")

// ErrInvalid is matched by every error about an argument that no state of the
// database could make right. No statement was sent.
var ErrInvalid = errors.New("kiroku: invalid argument")

// VersionConflictError: the stream is at another version than expected.
type VersionConflictError struct {
	Stream   string
	Expected ExpectedVersion
	// Actual is the version that the stream had, locked, at that moment.
	Actual int64
}

func (e *VersionConflictError) Error() string {
	return fmt.Sprintf("kiroku: stream %q is at version %d, expected %v", e.Stream, e.Actual, e.Expected)
}

// Is matches [ErrConflict].
func (e *VersionConflictError) Is(target error) bool { return target == ErrConflict }

// StreamNotFoundError: the stream had to exist.
type StreamNotFoundError struct {
	Stream   string
	Expected ExpectedVersion
	// Deleted: it exists, but is deleted softly; no append reaches it until it
	// is undeleted.
	Deleted bool
	// Actual is the version of the deleted stream.
	Actual int64
}

func (e *StreamNotFoundError) Error() string {
	state := "does not exist"
	if e.Deleted {
		state = "is deleted"
	}
	return fmt.Sprintf("kiroku: stream %q %s, expected %v", e.Stream, state, e.Expected)
}

// Is matches [ErrConflict].
func (e *StreamNotFoundError) Is(target error) bool { return target == ErrConflict }

// StreamExistsError: the stream had to be new.
type StreamExistsError struct {
	Stream string
	// Actual is the version that the stream has.
	Actual int64
	// Deleted: it is deleted softly, which does not free its name.
	Deleted bool
}

func (e *StreamExistsError) Error() string {
	return fmt.Sprintf("kiroku: stream %q exists already, at version %d", e.Stream, e.Actual)
}

// Is matches [ErrConflict].
func (e *StreamExistsError) Is(target error) bool { return target == ErrConflict }

// DuplicateEventError: an event with this id is in the store already, or twice
// in one call. For a caller who gave the ids it is how a repeated append shows.
type DuplicateEventError struct {
	// EventID is zero if the server did not tell which it was.
	EventID uuid.UUID
	err     *pgconn.PgError
}

func (e *DuplicateEventError) Error() string {
	return fmt.Sprintf("kiroku: event %s exists already", e.EventID)
}

// Unwrap returns the server's error; nil if the call itself repeated the id.
func (e *DuplicateEventError) Unwrap() error { return unwrapPg(e.err) }

// ReservedStreamError: the name is one that kiroku keeps for itself.
type ReservedStreamError struct{ Stream string }

func (e *ReservedStreamError) Error() string {
	return fmt.Sprintf("kiroku: nothing can be appended to %q: it is the log of all streams", e.Stream)
}

// Is matches [ErrInvalid].
func (e *ReservedStreamError) Is(target error) bool { return target == ErrInvalid }

// StreamNameError: the name cannot be a stream's.
type StreamNameError struct {
	Stream  string
	Problem string
}

func (e *StreamNameError) Error() string {
	return fmt.Sprintf("kiroku: stream name %s: %s", quoteShort(e.Stream), e.Problem)
}

// Is matches [ErrInvalid].
func (e *StreamNameError) Is(target error) bool { return target == ErrInvalid }

// RepeatedStreamError: one call names a stream twice. Put its events together.
type RepeatedStreamError struct{ Stream string }

func (e *RepeatedStreamError) Error() string {
	return fmt.Sprintf("kiroku: stream %q twice in one append: put its events together", e.Stream)
}

// Is matches [ErrInvalid].
func (e *RepeatedStreamError) Is(target error) bool { return target == ErrInvalid }

// EmptyAppendError: a stream came without events.
type EmptyAppendError struct{ Stream string }

func (e *EmptyAppendError) Error() string {
	return fmt.Sprintf("kiroku: no events for stream %q", e.Stream)
}

// Is matches [ErrInvalid].
func (e *EmptyAppendError) Is(target error) bool { return target == ErrInvalid }

// InvalidEventError: the store cannot hold this event.
type InvalidEventError struct {
	Stream string
	// Index is the event's place in its StreamAppend, from 0.
	Index int
	// Field is "Type", "Data" or "Metadata".
	Field string
	// Err says what is wrong with it; a [*JSONError] for the two JSON fields.
	Err error
}

func (e *InvalidEventError) Error() string {
	return fmt.Sprintf("kiroku: stream %q, event %d: %s: %v", e.Stream, e.Index, e.Field, e.Err)
}

// Unwrap returns Err.
func (e *InvalidEventError) Unwrap() error { return e.Err }

// Is matches [ErrInvalid].
func (e *InvalidEventError) Is(target error) bool { return target == ErrInvalid }

// ArgumentError: an argument is out of its range.
type ArgumentError struct {
	Argument string
	Problem  string
}

func (e *ArgumentError) Error() string { return "kiroku: " + e.Argument + " " + e.Problem }

// Is matches [ErrInvalid].
func (e *ArgumentError) Is(target error) bool { return target == ErrInvalid }

// TransientError: the statement lost against a concurrent one (a deadlock, a
// serialization failure, a lock timeout, a stream created at the same moment).
// Nothing was written; the same call may succeed. Inside a transaction of the
// caller that transaction is aborted: repeat it whole.
type TransientError struct {
	Err error
}

func (e *TransientError) Error() string {
	return "kiroku: lost against a concurrent write: " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *TransientError) Unwrap() error { return e.Err }

// EventGoneError: the event was deleted for good, so nothing can refer to it.
type EventGoneError struct {
	EventID  uuid.UUID
	Position Position
	err      *pgconn.PgError
}

func (e *EventGoneError) Error() string {
	return fmt.Sprintf("kiroku: event %s at position %d is gone", e.EventID, e.Position)
}

// Unwrap returns the server's error.
func (e *EventGoneError) Unwrap() error { return unwrapPg(e.err) }

// CheckpointMissingError: a start that allows no new checkpoint found none.
type CheckpointMissingError struct {
	Subscription string
	// Members lists the members without a checkpoint.
	Members []int
}

func (e *CheckpointMissingError) Error() string {
	return fmt.Sprintf("kiroku: subscription %q has no checkpoint for members %v", e.Subscription, e.Members)
}

// DeadLetterNotFoundError: no dead letter has this id.
type DeadLetterNotFoundError struct{ ID int64 }

func (e *DeadLetterNotFoundError) Error() string {
	return fmt.Sprintf("kiroku: no dead letter %d", e.ID)
}

// SchemaError: an object of the event store is not as this package needs it.
// Several are joined.
type SchemaError struct {
	// Object is what is wrong, e.g. "column kiroku.streams.category".
	Object string
	// Problem is what is wrong with it.
	Problem string
	// Cure is what to do about it.
	Cure string
}

func (e *SchemaError) Error() string {
	return fmt.Sprintf("kiroku: %s %s (%s)", e.Object, e.Problem, e.Cure)
}

// LedgerError: what a migration tool recorded forbids to use the schema.
type LedgerError struct {
	// Ledger is the table, e.g. "pgmigrate.migrations".
	Ledger string
	// Migration is the name in the row; empty when the row is missing.
	Migration string
	Problem   string
	Cure      string
}

func (e *LedgerError) Error() string {
	return fmt.Sprintf("kiroku: ledger %s: migration %q %s (%s)", e.Ledger, e.Migration, e.Problem, e.Cure)
}

// unwrapPg keeps a nil pointer from becoming an error that is not nil.
func unwrapPg(err *pgconn.PgError) error {
	if err == nil {
		return nil
	}
	return err
}

// quoteShort keeps an overlong name out of logs.
func quoteShort(s string) string {
	const most = 64
	if len(s) <= most {
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprintf("%q… (%d bytes)", strings.ToValidUTF8(s[:most], ""), len(s))
}
