package kiroku

import (
	"slices"

	"github.com/google/uuid"
)

// What appends share a statement, and what its answer means: decided without
// database, goroutine or clock. The statement judges every expectation by what
// the streams were before it, so an append whose expectation may hang on one
// ahead of it goes with a later statement.

// shareable is what the choice needs to know of an append.
type shareable struct {
	uses []streamUse
	// ids are those that the caller chose; others are new by themselves.
	ids []uuid.UUID
	// events and bytes are its size.
	events, bytes int
}

type streamUse struct {
	stream   string
	expected ExpectedVersion
}

// shareLimits bound what goes together. One append always goes, however large.
type shareLimits struct{ appends, events, bytes int }

// sharedLimits keep a statement short: it holds up every writer of the store.
var sharedLimits = shareLimits{appends: 128, events: 1000, bytes: 4 << 20}

// worthAnother is how many events have to wait for a second statement to go
// while one is under way. It does all but the last step beside the first; but
// two flushes cost more than one. The number is a guess: on a busy machine 8, 16
// and 500 could not be told apart for certain.
const worthAnother = 16

// choose returns which of the waiting appends go together, by their indexes in
// ascending order: none to streams that others under way append to. Unless such
// is in the way the first goes. Appends to one stream do not overtake each
// other.
func choose(waiting []shareable, underWay map[string]bool, most shareLimits) []int {
	var (
		chosen        []int
		events, bytes int
		streams       = map[string]streamState{}
		ids           = map[uuid.UUID]struct{}{}
	)
	for stream := range underWay {
		streams[stream] = streamBlocked
	}
	for i, s := range waiting {
		if len(chosen) == most.appends || len(chosen) > 0 && (events+s.events > most.events || bytes+s.bytes > most.bytes) {
			break
		}
		if !fits(s, streams, ids) {
			for _, u := range s.uses {
				streams[u.stream] = streamBlocked
			}
			continue
		}
		for _, u := range s.uses {
			streams[u.stream] = max(streams[u.stream], stateAfter(u.expected))
		}
		for _, id := range s.ids {
			ids[id] = struct{}{}
		}
		chosen = append(chosen, i)
		events += s.events
		bytes += s.bytes
	}
	return chosen
}

// streamState is what the appends chosen so far may make of a stream.
type streamState int

const (
	streamUntouched streamState = iota
	// streamLonger: if it exists its version may have changed.
	streamLonger
	// streamMade: it may have been created, too.
	streamMade
	// streamBlocked: an append that was passed over comes first.
	streamBlocked
)

func stateAfter(e ExpectedVersion) streamState {
	if e.kind == anyVersion || e.kind == noStream {
		return streamMade
	}
	return streamLonger
}

// fits tells whether the append's expectations are about what the streams were
// before all that was chosen, and whether its events are new.
func fits(s shareable, streams map[string]streamState, ids map[uuid.UUID]struct{}) bool {
	for _, u := range s.uses {
		most := streamUntouched
		switch u.expected.kind {
		case anyVersion:
			most = streamMade
		case streamExists:
			most = streamLonger
		case noStream, exactVersion:
		}
		if streams[u.stream] > most {
			return false
		}
	}
	return !slices.ContainsFunc(s.ids, func(id uuid.UUID) bool {
		_, ok := ids[id]
		return ok
	})
}

// met judges as the statements do.
func (e ExpectedVersion) met(r appendRow) bool {
	switch {
	case !r.found:
		return e.kind == anyVersion || e.kind == noStream
	case r.deleted || e.kind == noStream:
		return false
	default:
		return e.kind != exactVersion || e.version == r.versionFound
	}
}

// streamNow is a stream as a statement left it.
type streamNow struct {
	exists, deleted bool
	version         int64
}

func (n streamNow) after(r appendRow) streamNow {
	return streamNow{
		exists:  n.exists || r.found || r.version > 0,
		deleted: r.deleted,
		version: max(n.version, r.versionFound, r.version),
	}
}

// refute returns why an append cannot succeed where the streams are as known.
// It returns nothing if it can, or if not all of its streams are known.
func refute(appends []StreamAppend, known map[string]streamNow) []error {
	var faults []error
	for _, a := range appends {
		now, ok := known[a.Stream]
		if !ok {
			return nil
		}
		row := appendRow{found: now.exists, deleted: now.deleted, versionFound: now.version}
		if !a.Expected.met(row) {
			faults = append(faults, conflictError(a, row))
		}
	}
	return faults
}

// afterFailure decides what a failed statement means for each of its appends.
// Tried again, each by itself, is only what certainly was not written.
func afterFailure(err error) outcome {
	pg, ok := asPg(err)
	switch {
	case !ok:
		return outcome{err: err}
	case pg.SeverityUnlocalized != "ERROR":
		// The connection went with it, and what it was doing is unknown.
		return outcome{err: appendError(err)}
	case pg.Code == sqlstateLockNotAvailable:
		// All of them waited for that lock, and would again.
		return outcome{err: appendError(err)}
	}
	return outcome{alone: true}
}
