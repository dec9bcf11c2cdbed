package lease

import (
	"time"

	"github.com/google/uuid"
)

// How long a worker watches before it believes, in parts of RenewInterval or as
// a time.
const (
	settleTime   = 100 * time.Millisecond // between two sightings of a receiver
	watchPercent = 120                    // an expired lease, unchanged (P-11)
	openPercent  = 120                    // a claimable bucket that nobody takes
	idlePercent  = 150                    // a free deal that its worker lets lie
	slowPercent  = 250                    // the same for keiro workers, and for expired leases
	latePercent  = 150                    // between two beats of one worker
	idleSpell    = 300                    // how long an idle one counts as idle, at first
	idleDoubling = 4                      // how often that doubles
)

// memory is what a worker remembers from beat to beat. It reads no clock: the
// times are given to it. A beat has two: when it was sent and when its answer
// came, so that what is seen is never thought older than it is.
type memory struct {
	renew   time.Duration
	workers map[uuid.UUID]*sighting
	leases  map[int]*watched
	// last is when the last good answer came; calm since when there was neither
	// a failed nor a late beat.
	last, calm time.Time
	disturbed  bool
}

// sighting is what is known of another live worker.
type sighting struct {
	first time.Time
	holds int
	// due is since when it lets something lie, zero when it does not.
	due time.Time
	// until is how long it counts as idle, zero when it does not.
	until time.Time
	// spells counts how often it was idle since it last claimed.
	spells int
	seen   bool
}

// watched is what is known of a shard row.
type watched struct {
	owner  uuid.UUID
	expiry int64
	first  time.Time
	// claimable is since when it could be claimed, zero when it cannot.
	claimable time.Time
}

func newMemory(renew time.Duration) *memory {
	return &memory{renew: renew, workers: map[uuid.UUID]*sighting{}, leases: map[int]*watched{}}
}

func (m *memory) part(percent int) time.Duration { return m.renew * time.Duration(percent) / 100 }

// fail notes a beat that failed.
func (m *memory) fail() { m.disturbed = true }

// see takes in the answer of a beat.
func (m *memory) see(sent, came time.Time, live []Member, rows []Row) {
	late := !m.last.IsZero() && sent.Sub(m.last) > m.part(latePercent)
	if m.disturbed || late || m.calm.IsZero() {
		m.calm, m.disturbed = came, false
		for _, w := range m.workers {
			w.due = time.Time{}
		}
	}
	m.last = came
	holds := map[uuid.UUID]int{}
	for _, r := range rows {
		holds[r.Owner]++
		m.seeLease(came, r)
	}
	for _, w := range m.workers {
		w.seen = false
	}
	for _, l := range live {
		m.seeWorker(came, l.ID, holds[l.ID])
	}
	for id, w := range m.workers {
		if !w.seen {
			delete(m.workers, id)
		}
	}
}

func (m *memory) seeLease(came time.Time, r Row) {
	w := m.leases[r.Bucket]
	if w == nil || w.owner != r.Owner || w.expiry != r.Expiry {
		m.leases[r.Bucket] = &watched{owner: r.Owner, expiry: r.Expiry, first: came}
	}
}

func (m *memory) seeWorker(came time.Time, id uuid.UUID, holds int) {
	w := m.workers[id]
	if w == nil {
		w = &sighting{first: came, holds: holds}
		m.workers[id] = w
	}
	if holds > w.holds { // it claims
		w.due, w.until, w.spells = time.Time{}, time.Time{}, 0
	}
	w.holds, w.seen = holds, true
}

// settled: the worker was seen in two snapshots far enough apart.
func (m *memory) settled(sent time.Time, id uuid.UUID) bool {
	w := m.workers[id]
	return w != nil && sent.Sub(w.first) >= settleTime
}

// idle: the worker let its deal lie.
func (m *memory) idle(sent time.Time, id uuid.UUID) bool {
	w := m.workers[id]
	return w != nil && sent.Before(w.until)
}

// ripe: this worker has itself seen the lease unchanged for long enough, without
// a failed or late beat in between (P-11).
func (m *memory) ripe(sent time.Time, bucket int) bool { return m.ripeIn(sent, bucket) <= 0 }

// ripeIn is how long until the lease is ripe.
func (m *memory) ripeIn(sent time.Time, bucket int) time.Duration {
	w := m.leases[bucket]
	if w == nil {
		return m.part(watchPercent)
	}
	first := w.first
	if m.calm.After(first) {
		first = m.calm
	}
	return m.part(watchPercent) - sent.Sub(first) + 1 // more than, not equal
}

// lying notes whether the bucket can be claimed, and says for how many intervals
// that has been so.
func (m *memory) lying(sent, came time.Time, bucket int, claimable bool) int {
	w := m.leases[bucket]
	switch {
	case w == nil:
		return 0
	case !claimable:
		w.claimable = time.Time{}
		return 0
	case w.claimable.IsZero() || m.calm.After(w.claimable):
		w.claimable = came
	}
	switch lies := sent.Sub(w.claimable); {
	case lies > m.part(slowPercent):
		return 2
	case lies > m.part(openPercent):
		return 1
	default:
		return 0
	}
}

// dealt takes in who has something to claim, and judges who lets it lie. It tells
// whether that made somebody idle.
func (m *memory) dealt(sent, came time.Time, due []Due, keiro func(uuid.UUID) bool) bool {
	judged := false
	waiting := map[uuid.UUID]bool{}
	for _, d := range due {
		w := m.workers[d.Member]
		if w == nil {
			continue
		}
		waiting[d.Member] = true
		patience := m.part(slowPercent)
		if d.Free && !keiro(d.Member) {
			patience = m.part(idlePercent)
		}
		switch {
		case w.due.IsZero():
			w.due = came
		case sent.Sub(w.due) > patience:
			w.until = came.Add(m.part(idleSpell) << min(w.spells, idleDoubling))
			w.spells++
			w.due = time.Time{}
			judged = true
		}
	}
	for id, w := range m.workers {
		if !waiting[id] {
			w.due = time.Time{}
		}
	}
	return judged
}
