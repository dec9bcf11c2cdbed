package kiroku

import "strconv"

// Start says where a subscription begins that has no checkpoint yet. An existing
// checkpoint always wins. Values are comparable; the zero value is FromBeginning.
type Start struct {
	kind     startKind
	position Position
}

// startKind is numbered as the seeding statement reads it.
type startKind int16

const (
	startAt startKind = iota
	startAtHead
	startNowhere
)

// FromBeginning starts with the first event of the store.
func FromBeginning() Start { return Start{} }

// FromHead starts with the first event after the head at the moment at which
// the checkpoints are created. Only a subscription without any checkpoint starts
// there; members that one lacks start at the beginning, so that nothing is lost.
func FromHead() Start { return Start{kind: startAtHead} }

// FromPosition starts with the first event after p.
func FromPosition(p Position) Start { return Start{position: p} }

// MustExist starts nothing new: a missing checkpoint is an error.
func MustExist() Start { return Start{kind: startNowhere} }

func (s Start) String() string {
	switch {
	case s.kind == startAtHead:
		return "from the head"
	case s.kind == startNowhere:
		return "from an existing checkpoint"
	case s.position != 0:
		return "from position " + strconv.FormatInt(int64(s.position), 10)
	default:
		return "from the beginning"
	}
}
