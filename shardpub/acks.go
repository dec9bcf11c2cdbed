package shardpub

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"

	"github.com/google/uuid"

	"github.com/suisha-go/suisha/kiroku"
)

// acks are the events of a bucket that were settled above its checkpoint (P-39).
// A successor skips exactly these. It is a plain value: no clock, no database.
//
// Last is what they are known again by: logs that have the same event at one
// place are the same up to there (P-31).
type acks struct {
	at   []kiroku.Position // ascending
	last uuid.UUID         // the event at the last of them
}

// acksFormat is the first byte of what encode makes. The id of the last event
// follows, and then each position less the one before it, as a varint: one byte
// for an event that is less than 128 places behind its predecessor.
const acksFormat = 1

// errAcks: not what encode makes, or by a later version of it.
var errAcks = errors.New("the settled positions are in an unknown format")

// encode is empty when there are none.
func (a acks) encode() []byte {
	if len(a.at) == 0 {
		return []byte{}
	}
	out := make([]byte, 0, 1+len(a.last)+binary.MaxVarintLen64+2*len(a.at))
	out = append(append(out, acksFormat), a.last[:]...)
	before := kiroku.Position(0)
	for _, p := range a.at {
		out = binary.AppendUvarint(out, uint64(p-before)) //nolint:gosec // ascending
		before = p
	}
	return out
}

// decodeAcks reads what encode made, and nothing else.
func decodeAcks(in []byte) (acks, error) {
	var a acks
	if len(in) == 0 {
		return a, nil
	}
	if in[0] != acksFormat || len(in) <= 1+len(a.last) {
		return acks{}, errAcks
	}
	rest := in[1+copy(a.last[:], in[1:]):]
	at := kiroku.Position(0)
	for len(rest) > 0 {
		gap, n := binary.Uvarint(rest)
		// The shortest form only; a gap of 0 is no step and one beyond the rest an overflow.
		if n <= 0 || gap == 0 || gap > uint64(math.MaxInt64-at) || n > 1 && rest[n-1] == 0 {
			return acks{}, errAcks
		}
		at += kiroku.Position(gap) //nolint:gosec // checked
		a.at = append(a.at, at)
		rest = rest[n:]
	}
	return a, nil
}

// above is what there is of them above a checkpoint.
func (a acks) above(checkpoint kiroku.Position) acks {
	i, found := slices.BinarySearch(a.at, checkpoint)
	if found {
		i++
	}
	a.at = a.at[i:]
	return a
}

// of reports whether they are of the log in which these events stand. Of another
// one, or where the last of them was deleted, nothing may be skipped.
func (a acks) of(stands anchors) bool {
	return len(a.at) > 0 && a.last != uuid.Nil && stands[a.at[len(a.at)-1]] == a.last
}

// take reports whether the event at a position is one of them, once all that stand
// before it have been read: it and they leave.
func (a *acks) take(at kiroku.Position) bool {
	if len(a.at) == 0 {
		return false
	}
	i, found := slices.BinarySearch(a.at, at)
	if found {
		i++
	}
	a.at = a.at[i:]
	return found
}

// settledAhead is what is settled above the mark, or will be once e is, which is
// out; nil means none: those that stand in the window, and those that were
// inherited and not read yet.
func (l *lanes) settledAhead(e *entry) acks {
	var a acks
	if n := l.ahead(); n > 0 {
		a.at = make([]kiroku.Position, 0, n+1)
	}
	above := false // an unsettled event lies below
	for _, o := range l.order {
		switch {
		case o != e && !o.settled:
			above = true
		case above:
			a.at = append(a.at, o.event.Position)
			a.last = o.event.ID
		}
	}
	if len(l.inherited.at) > 0 {
		a.at = append(a.at, l.inherited.at...)
		a.last = l.inherited.last
	}
	return a
}
