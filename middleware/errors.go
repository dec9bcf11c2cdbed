package middleware

import (
	"errors"
	"time"
)

// permanentError asks for a dead letter at once.
type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// retryAfterError asks for the next delivery after a time of its own.
type retryAfterError struct {
	err   error
	after time.Duration
}

func (e *retryAfterError) Error() string { return e.err.Error() }
func (e *retryAfterError) Unwrap() error { return e.err }

// Permanent wraps an error that no retry can cure: the event becomes a dead
// letter at once, with the error's text as its reason. It outranks all other
// verdicts, and is found through wraps and joins. Its text is err's; errors.Is
// and As see err. Permanent(nil) is nil.
//
// On a plain Watermill router it needs [Mark]; router.Worker has that.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err: err}
}

// RetryAfter wraps an error after which the event is to be delivered again no
// sooner than after d, whatever the policy's delay; a negative d is zero. The
// delivery counts: when the policy's deliveries are used up, the event becomes a
// dead letter all the same. Of several that are wrapped or joined the first one
// found counts. RetryAfter(nil, d) is nil.
//
// On a plain Watermill router it needs [Mark]; router.Worker has that.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &retryAfterError{err: err, after: max(d, 0)}
}

func isPermanent(err error) bool {
	var e *permanentError
	return errors.As(err, &e)
}

func retryAfter(err error) (time.Duration, bool) {
	var e *retryAfterError
	if !errors.As(err, &e) {
		return 0, false
	}
	return e.after, true
}

// bare takes off the wraps of this package that are outermost, so that a dead
// letter names the type of the handler's own error.
func bare(err error) error {
	for {
		switch e := err.(type) { //nolint:errorlint // the outermost only
		case *permanentError:
			err = e.err
		case *retryAfterError:
			err = e.err
		default:
			return err
		}
	}
}
