package kiroku

import (
	"context"
	"fmt"
	"slices"
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
// one that is larger. All events of a statement have one time, and a stream is
// notified once per statement.
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
	common lane
	held   map[string]*lane
}

// lane is a queue of appends, and what is under way from it.
type lane struct {
	// patient is a lane whose appends wait for the lock of stream.
	patient bool
	stream  string
	waiting []*shared
	flying  int
}

func (l *lane) remove(s *shared) bool {
	i := slices.Index(l.waiting, s)
	if i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
	return i >= 0
}

const (
	// overtakeAfter is how long those who wait leave those before them alone.
	overtakeAfter = 100 * time.Millisecond
	// mostFlying bounds what is under way when it does not come back.
	mostFlying = 8
)

// NewAppender returns an Appender on db, which must be safe for concurrent use:
// a *pgxpool.Pool. In a transaction of yours use [Append].
func NewAppender(db DB) *Appender {
	return &Appender{db: db, held: map[string]*lane{}}
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
	s, l := a.enter(ctx, b)
	if s == nil {
		defer a.leave(l)
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

// enter lets the append wait in its lane. Where nothing is under way it returns
// nil: the caller goes by itself, and leaves the lane afterwards.
func (a *Appender) enter(ctx context.Context, b *appendBatch) (*shared, *lane) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := &a.common
	if held, ok := a.held[b.names[0]]; ok && len(b.names) == 1 {
		l = held
	}
	if l.flying == 0 {
		a.depart(l)
		return nil, l
	}
	s := newShared(ctx, b)
	s.lane = l
	l.waiting = append(l.waiting, s)
	return s, l
}

func (a *Appender) depart(l *lane) {
	l.flying++
	a.flights.Add(1)
}

// leave makes room in the lane for those who wait.
func (a *Appender) leave(l *lane) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if l.flying--; l.flying == 0 {
		a.board(l)
	}
	if l.flying == 0 && l.patient {
		delete(a.held, l.stream)
	}
	a.flights.Done()
}

// board sends those who wait, as many as go together.
func (a *Appender) board(l *lane) {
	if len(l.waiting) > 0 {
		a.depart(l)
		go a.fly(newFlight(l))
	}
}

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

// overtake sends those who wait though the statement before them is not back.
// Not where they wait for a stream: they would wait for it again.
func (a *Appender) overtake(s *shared) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if l := s.lane; s.flight == nil && !l.patient && l.flying < mostFlying {
		a.board(l)
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
