package lease

import (
	"slices"
	"time"

	"github.com/google/uuid"
)

// Status is what a Keeper knows at one moment.
type Status struct {
	Subscription string
	Worker       uuid.UUID
	// Joined: the presence is written. Leaving: nothing more is claimed.
	Joined, Leaving bool
	// Share is what the last plan dealt to this worker.
	Share int
	// Held are worked on, Draining are on their way out, Ending are lost and
	// still have something running. All ascending.
	Held, Draining, Ending []int
	// Workers are the live workers of the last beat, this one among them.
	Workers []uuid.UUID
	// LastBeat is when the last beat succeeded, by the local clock; zero before
	// the first.
	LastBeat time.Time
	// LastError is what went wrong since, or nil.
	LastError error
	// Trust is the least that is left of any bucket held or draining; zero when
	// there is none.
	Trust time.Duration
}

// Status tells how things stand. It does not block.
func (k *Keeper) Status() Status {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := Status{
		Subscription: k.cfg.Subscription.Name,
		Worker:       k.cfg.Identity.Worker,
		Joined:       k.joined,
		Leaving:      k.leaving,
		Share:        k.state.share,
		LastBeat:     k.state.lastBeat,
		LastError:    k.state.lastErr,
	}
	for _, m := range k.state.members {
		s.Workers = append(s.Workers, m.ID)
	}
	first := true
	for bucket, e := range k.entries {
		switch e.phase {
		case opening, held:
			s.Held = append(s.Held, bucket)
		case draining:
			s.Draining = append(s.Draining, bucket)
		case ending:
			s.Ending = append(s.Ending, bucket)
			continue
		}
		if left := e.tenure.Left(); first || left < s.Trust {
			s.Trust, first = left, false
		}
	}
	slices.Sort(s.Held)
	slices.Sort(s.Draining)
	slices.Sort(s.Ending)
	return s
}
