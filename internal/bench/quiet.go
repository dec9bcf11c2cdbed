package bench

import (
	"fmt"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill"
)

// Quiet logs nothing and keeps the first error that a Pub/Sub logs until it is
// told to stop. It is a watermill.LoggerAdapter.
type Quiet struct {
	watermill.NopLogger

	first atomic.Pointer[error]
	done  atomic.Bool
}

// Error implements watermill.LoggerAdapter.
func (q *Quiet) Error(text string, err error, fields watermill.LogFields) {
	if q.done.Load() {
		return
	}
	err = fmt.Errorf("logged: %s %v: %w", text, fields, err)
	q.first.CompareAndSwap(nil, &err)
}

// With implements watermill.LoggerAdapter.
func (q *Quiet) With(watermill.LogFields) watermill.LoggerAdapter { return q }

// Stop returns the error, and hears no more.
func (q *Quiet) Stop() error {
	q.done.Store(true)
	if err := q.first.Load(); err != nil {
		return *err
	}
	return nil
}
