package kiroku

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Appender appends like [Append] and lets appends that are called at the same
// time share a statement, and so a commit. Each stays an append of its own: all
// or nothing, under its own expectations, with its own result or error, whatever
// becomes of the others; its events follow each other in [AllStreams].
//
// An append that finds none under way goes out at once, as [Append] would send
// it. Those that come meanwhile wait until it is back and then go together, in
// the order in which they came: at most 128 appends, 1,000 events and 4 MiB, or
// one that is larger. When 16 events wait they go beside it, if they go to other
// streams. All events of a statement have one time, and a stream is notified
// once per statement.
//
// When a context ends, its caller gets the error at once. An append that still
// waited for its turn is not written (the error is [pgconn.SafeToRetry]).
// Otherwise its outcome is unknown: the statement goes on for the others, and is
// cancelled when all of its callers are gone.
//
// If the server refuses a statement nothing of it was written, and each append
// is tried by itself. An error of the connection goes to all who shared it;
// their outcome is unknown, as it is with [Append]. So does a lock timeout. A
// panic of what pgx calls (a tracer, say) is passed on to all of them.
//
// An append to a stream that another transaction has locked holds up no appends
// to others. A statement that is slow to come back is overtaken after 100 ms.
// Only the lock of the global position holds up all.
//
// While nothing is under way an Appender has no goroutine. It needs no Close.
type Appender struct {
	db DB
	// flights counts what is under way.
	flights sync.WaitGroup

	mu sync.Mutex // guards the lanes, and the appends and flights in them
	// common is the lane of all appends but those that wait for a stream which
	// another transaction has locked: they have lanes of their own, by its name.
	common *lane
	held   map[string]*lane
	// departed counts trips.
	departed int
}

// NewAppender returns an Appender on db, which must be safe for concurrent use:
// a *pgxpool.Pool. In a transaction of yours use [Append].
func NewAppender(db DB) *Appender {
	return &Appender{db: db, common: newLane(""), held: map[string]*lane{}}
}

// Append is [Append] for one of several concurrent callers.
func (a *Appender) Append(ctx context.Context, appends ...StreamAppend) ([]Appended, error) {
	if len(appends) == 0 {
		return nil, nil
	}
	if err := validateAppends(appends); err != nil {
		return nil, err
	}
	b, err := newAppendBatch(appends)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, &goneError{err: err}
	}
	s, alone := a.enter(ctx, b)
	if alone != nil {
		defer a.leave(alone)
		return b.append(ctx, a.db)
	}
	o := a.await(ctx, s)
	switch {
	case o.panicked != nil:
		panic(o.panicked)
	case o.alone:
		return b.append(ctx, a.db)
	}
	return o.appended, o.err
}

// Wait returns when nothing is under way, also not for callers that are gone. No
// Append may begin meanwhile.
func (a *Appender) Wait() { a.flights.Wait() }

// await returns what becomes of an append in a lane.
func (a *Appender) await(ctx context.Context, s *shared) outcome {
	late := time.NewTimer(overtakeAfter)
	defer late.Stop()
	for {
		select {
		case <-s.done:
			return s.outcome
		case <-ctx.Done():
			return a.abandon(ctx, s)
		case <-late.C:
			a.overtake(s)
			late.Reset(overtakeAfter)
		}
	}
}

// abandon is the end of an append whose caller goes.
func (a *Appender) abandon(ctx context.Context, s *shared) outcome {
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case <-s.done:
		return s.outcome // it is known after all
	default:
	}
	if s.flight == nil {
		s.lane.remove(s)
		return outcome{err: &goneError{err: ctx.Err()}}
	}
	s.flight.abandon(s)
	return outcome{err: fmt.Errorf("kiroku: gone while the append was under way: %w", ctx.Err())}
}

// goneError: the caller was gone before anything was sent.
type goneError struct{ err error }

func (e *goneError) Error() string {
	return "kiroku: gone before the append was sent: " + e.err.Error()
}

func (e *goneError) Unwrap() error { return e.err }

// SafeToRetry tells [pgconn.SafeToRetry] that nothing was written.
func (e *goneError) SafeToRetry() bool { return true }
