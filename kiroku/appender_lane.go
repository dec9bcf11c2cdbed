package kiroku

import (
	"context"
	"slices"
	"time"
)

// lane is a queue of appends, and what is under way from it.
type lane struct {
	// stream is the one whose lock the appends of the lane wait for. Those of the
	// common lane wait for none.
	stream  string
	patient bool
	waiting []*shared
	// trips are under way, and have not been overtaken.
	trips []*trip
	// overtaken counts statements for several that do not come back, slow by
	// stream those for one.
	overtaken int
	slow      map[string]int
}

// trip is one statement under way.
type trip struct {
	lane    *lane
	number  int
	streams []string
	// alone: it is one append. It waits for its streams if they are locked.
	alone     bool
	overtaken bool
}

const (
	// overtakeAfter is how long those who wait leave a statement alone.
	overtakeAfter = 100 * time.Millisecond
	// mostOvertaken bounds how many statements for several are given up on.
	mostOvertaken = 8
)

func newLane(stream string) *lane {
	return &lane{stream: stream, slow: map[string]int{}}
}

func (l *lane) remove(s *shared) bool {
	i := slices.Index(l.waiting, s)
	if i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
	return i >= 0
}

// due tells whether a statement should go. A second one goes beside the first
// when enough wait for it, and to other streams.
func (l *lane) due() bool {
	switch {
	case len(l.waiting) == 0 || len(l.trips) > 1:
		return false
	case len(l.trips) == 0:
		return true
	}
	events := 0
	for _, s := range l.waiting {
		if events += s.events; events >= worthAnother {
			return !l.patient
		}
	}
	return false
}

// underWay are the streams that trips append to.
func (l *lane) underWay() map[string]bool {
	streams := map[string]bool{}
	for _, t := range l.trips {
		for _, stream := range t.streams {
			streams[stream] = true
		}
	}
	return streams
}

// enter lets the append wait in its lane. Where nothing is under way it goes by
// itself: the caller leaves the lane when it is back.
func (a *Appender) enter(ctx context.Context, b *appendBatch) (*shared, *trip) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.common
	if len(b.names) == 1 {
		if stream := b.names[0]; a.held[stream] != nil || a.common.slow[stream] > 0 {
			l = a.laneOf(stream)
		}
	}
	if len(l.trips) == 0 {
		return nil, a.depart(l, b.names, true)
	}
	s := newShared(ctx, b)
	s.lane, s.since = l, a.departed
	l.waiting = append(l.waiting, s)
	a.board(l)
	return s, nil
}

// laneOf is the lane of those who wait for a stream.
func (a *Appender) laneOf(stream string) *lane {
	l, ok := a.held[stream]
	if !ok {
		l = newLane(stream)
		l.patient = true
		a.held[stream] = l
	}
	return l
}

func (a *Appender) depart(l *lane, streams []string, alone bool) *trip {
	a.flights.Add(1)
	a.departed++
	t := &trip{lane: l, number: a.departed, streams: streams, alone: alone}
	l.trips = append(l.trips, t)
	return t
}

// leave makes room in the lane for those who wait.
func (a *Appender) leave(t *trip) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := t.lane
	switch {
	case !t.overtaken:
		l.trips = slices.DeleteFunc(l.trips, func(other *trip) bool { return other == t })
	case !t.alone:
		l.overtaken--
	default:
		for _, stream := range t.streams {
			if l.slow[stream]--; l.slow[stream] == 0 {
				delete(l.slow, stream)
			}
		}
	}
	a.board(l)
	if l.patient && len(l.trips) == 0 {
		delete(a.held, l.stream)
	}
	a.flights.Done()
}

// board sends those who wait, if it is time, as many as go together.
func (a *Appender) board(l *lane) {
	if !l.due() {
		return
	}
	if f := newFlight(l); f != nil {
		f.trip = a.depart(l, f.streams(), len(f.members) == 1)
		go a.fly(f)
	}
}

// overtake lets those who wait go although statements that were sent before s
// came are not back. Not where all wait for a stream: they would again.
func (a *Appender) overtake(s *shared) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := s.lane
	if s.flight != nil || l.patient {
		return
	}
	l.trips = slices.DeleteFunc(l.trips, func(t *trip) bool {
		if t.number > s.since || !t.alone && l.overtaken == mostOvertaken {
			return false
		}
		t.overtaken = true
		if !t.alone {
			l.overtaken++
			return true
		}
		for _, stream := range t.streams {
			l.slow[stream]++
		}
		return true
	})
	s.since = a.departed
	a.board(l)
}
