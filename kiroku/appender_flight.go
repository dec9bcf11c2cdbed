package kiroku

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/suisha-go/suisha/internal/callers"
)

// shared is one append that waits for its turn, or is under way with others.
type shared struct {
	shareable
	batch *appendBatch
	ctx   context.Context //nolint:containedctx // it lives as long as the call that it belongs to
	lane  *lane
	// since is how many trips had departed when it came, or last overtook.
	since int
	// flight is nil while it waits.
	flight *flight
	// gone: its caller is.
	gone bool
	// done is closed when there is an outcome.
	done    chan struct{}
	outcome outcome
}

// outcome is what becomes of an append.
type outcome struct {
	appended []Appended
	err      error
	// alone: to be tried by itself. Nothing was written.
	alone bool
	// held: another transaction has this stream locked. Nothing was written.
	held *StreamAppend
	// panicked is what somebody below panicked with.
	panicked any
}

func newShared(ctx context.Context, b *appendBatch) *shared {
	s := &shared{batch: b, ctx: ctx, done: make(chan struct{})}
	s.ids, s.events = b.given, len(b.ids)
	for _, a := range b.appends {
		s.uses = append(s.uses, streamUse{stream: a.Stream, expected: a.Expected})
		for _, e := range a.Events {
			s.bytes += len(e.Type) + len(e.Data) + len(e.Metadata)
		}
	}
	return s
}

func (s *shared) settle(o outcome) {
	s.outcome = o
	close(s.done)
}

// flight is one statement for several appends.
type flight struct {
	trip    *trip
	patient bool
	members []*shared
	// passed waited already, and could not go along.
	passed []*shared
	ctx    context.Context //nolint:containedctx // it is the statement's, not a caller's
	cancel context.CancelFunc
	// callers counts those who are not gone.
	callers int
}

// newFlight takes those who go together out of the lane; nil if nobody can.
func newFlight(l *lane) *flight {
	f := &flight{patient: l.patient}
	all := make([]shareable, len(l.waiting))
	for i, s := range l.waiting {
		all[i] = s.shareable
	}
	chosen := choose(all, l.underWay(), sharedLimits)
	if len(chosen) == 0 {
		return nil
	}
	for i, s := range l.waiting {
		if _, ok := slices.BinarySearch(chosen, i); ok {
			s.flight = f
			f.members = append(f.members, s)
		} else {
			f.passed = append(f.passed, s)
		}
	}
	l.waiting = slices.Clone(f.passed)
	f.callers = len(f.members)
	f.ctx, f.cancel = f.context()
	return f
}

func (f *flight) streams() []string {
	var streams []string
	for _, s := range f.members {
		streams = append(streams, s.batch.names...)
	}
	return streams
}

// context ends when those of all callers have, and has the values of one.
func (f *flight) context() (context.Context, context.CancelFunc) {
	all := make([]context.Context, len(f.members))
	for i, s := range f.members {
		all[i] = s.ctx //nolint:fatcontext // each is another one
	}
	return callers.UntilLast(all)
}

func (f *flight) abandon(s *shared) {
	s.gone = true
	if f.callers--; f.callers == 0 {
		f.cancel()
	}
}

// errVanished: something ended the goroutine that wrote (runtime.Goexit).
var errVanished = errors.New("kiroku: the append was ended from inside; its outcome is unknown")

// fly writes, and lands also when what it calls panics.
func (a *Appender) fly(f *flight) {
	var refused []outcome
	outcomes := slices.Repeat([]outcome{{err: errVanished}}, len(f.members))
	defer func() {
		if r := recover(); r != nil {
			outcomes = slices.Repeat([]outcome{{panicked: r}}, len(f.members))
		}
		f.cancel()
		waiting := a.land(f, outcomes, refused)
		a.gather(f.trip.lane, waiting+len(f.members))
		a.leave(f.trip)
	}()
	outcomes, refused = f.write(a.db)
}

// land hands out what became of the appends, and counts those that waited meanwhile.
func (a *Appender) land(f *flight, outcomes, refused []outcome) (waiting int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	waiting = len(f.trip.lane.waiting)
	for i, s := range f.members {
		switch o := outcomes[i]; {
		case o.held == nil:
			s.settle(o)
		case s.gone || len(s.uses) > 1:
			s.settle(outcome{alone: true})
		default:
			a.hold(s, o.held.Stream)
		}
	}
	for i, o := range refused {
		if s := f.passed[i]; o.err != nil && f.trip.lane.remove(s) {
			s.settle(o)
		}
	}
	return waiting
}

// hold lets an append wait for its stream, with others that do.
func (a *Appender) hold(s *shared, stream string) {
	l := a.laneOf(stream)
	s.flight, s.lane = nil, l
	l.waiting = append(l.waiting, s)
	a.board(l)
}

// gatherStep is how long those who were served may take to bring what they have
// next, and gatherSteps how often, as long as somebody does.
const (
	gatherStep  = 50 * time.Microsecond
	gatherSteps = 4
)

// gather lets those who were just served bring what they have next, so that
// all go together and not every other one: as many as wanted, or who come at once.
// A statement and its commit cost more than ten times what those who wait lose; a
// lone caller waits for nobody.
func (a *Appender) gather(l *lane, wanted int) {
	wanted = min(wanted, sharedLimits.appends)
	waiting := func() int {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(l.waiting)
	}
	before := -1
	for now := waiting(); now > before && now < wanted; now = waiting() {
		before = now
		runtime.Gosched()
	}
	if wanted < 3 {
		return
	}
	for now, step := waiting(), 0; now < wanted && step < gatherSteps; step++ {
		<-time.After(gatherStep)
		if before, now = now, waiting(); now <= before {
			return
		}
	}
}

// write runs the statement until it is certain what became of it.
func (f *flight) write(db DB) (outcomes, refused []outcome) {
	if len(f.members) == 1 {
		got, err := f.members[0].batch.append(f.ctx, db)
		return []outcome{{appended: got, err: err}}, nil
	}
	var batches []*appendBatch
	creations, again := 0, 1
	for _, s := range f.members {
		batches = append(batches, s.batch)
		creations += len(s.uses)
	}
	for {
		rows, err := runShared(f.ctx, db, batches, f.patient)
		lost := err == nil && rows.lost() || err != nil && lostCreation(err)
		switch {
		case lost && creations > 0:
			creations--
		case err != nil && (lostRace(err) || pgconn.SafeToRetry(err)) && again > 0 && f.ctx.Err() == nil:
			again--
		case err != nil:
			return slices.Repeat([]outcome{afterFailure(err)}, len(f.members)), nil
		case lost:
			return slices.Repeat([]outcome{{alone: true}}, len(f.members)), nil
		default:
			return rows.outcomes(batches), rows.refusals(batches, f.passed)
		}
	}
}
