package lease_test

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/suisha-go/suisha/lease"
)

// world is one simulation: a table, the processes that share it, and what must
// hold of them at every moment.
type world struct {
	t     *testing.T
	s     schedule
	table *table
	fault fault
	began time.Time
	tied  bool // workers of unequal weights have equal claims on a bucket

	grace, strange time.Duration // of the watches
	steadyFor      time.Duration // how long nothing may move in the end

	mu        sync.Mutex // guards what follows; never held while time passes
	procs     []*proc
	keiros    []*keiroWorker
	mixed     bool // there were some: their leases outlive them
	stints    []*stint
	down      int // how many outages there are; 0 when the database is up
	locks     map[int64]*backend
	fallen    chan struct{} // closed when the server falls
	fell      time.Time     // when it last did
	restarted time.Time     // when it last was another one afterwards
	timers    []*time.Timer
	ended     bool
	trace     []string
	violation string
}

// stint is a tenure as the world sees it.
type stint struct {
	p      *proc
	t      *lease.Tenure
	bucket int
	// idle: no handler of it runs; quiet: it begins no further write; closed:
	// nothing of it runs any more; finished: Drain or Lose has returned.
	idle, quiet, closed, finished bool
	resigned, draining            bool
	grant                         *grant
}

// grant is what a claim got.
type grant struct {
	// excused: an operator took the row, or the worker was marked gone and had
	// not renewed since when another claimed.
	excused bool
}

// live: the process believes that the bucket is its own, and may work on it.
func (s *stint) live() bool { return !s.p.dead() && !s.closed && s.t.Trusted() }

func (w *world) since() time.Duration { return time.Since(w.began) }

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		w.trace = append(w.trace, fmt.Sprintf("%12v ", w.since())+fmt.Sprintf(format, args...))
	}
}

// violate keeps the first violation.
func (w *world) violate(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.note("VIOLATION: %s", text)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.violation == "" && !w.ended {
		w.violation = text
	}
}

func (w *world) broken() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.violation != ""
}

// fingerprint tells runs apart.
func (w *world) fingerprint() uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(strings.Join(w.trace, "\n")))
	return h.Sum64()
}

// later does something after a time, unless all faults are over by then.
func (w *world) later(d time.Duration, f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	d += time.Duration(len(w.timers)*17+1) * time.Nanosecond // never two at once
	w.timers = append(w.timers, time.AfterFunc(d, f))
}

// check looks for two owners of one bucket, and for one without its row.
func (w *world) check(doing string) {
	owners := w.table.owners()
	w.mu.Lock()
	var faults []string
	believer := make([]*stint, len(owners))
	for _, s := range w.stints {
		if s.grant.excused || !s.live() {
			continue
		}
		if o := believer[s.bucket]; o != nil && o.p != s.p {
			faults = append(faults, fmt.Sprintf("%s: %v and %v both trust bucket %d", doing, o.p, s.p, s.bucket))
		}
		believer[s.bucket] = s
		if owners[s.bucket] != s.p.id {
			faults = append(faults, fmt.Sprintf("%s: %v trusts bucket %d, which is %s", doing, s.p, s.bucket, w.nameLocked(owners[s.bucket])))
		}
	}
	w.stints = slices.DeleteFunc(w.stints, func(s *stint) bool { return s.finished })
	w.mu.Unlock()
	for _, f := range faults {
		w.violate("%s", f)
	}
}

func (w *world) nameLocked(id uuid.UUID) string {
	if id == uuid.Nil {
		return "free"
	}
	for _, p := range w.procs {
		if p.id == id {
			return p.String() + "'s"
		}
	}
	return "keiro's"
}

// excuse forgives what the worker still believes of the bucket.
func (w *world) excuse(bucket int, owner uuid.UUID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.procs {
		if g := p.grants[bucket]; g != nil && p.id == owner {
			g.excused = true
		}
	}
}

// prior is a row before a claim.
type prior struct {
	memRow
	gone   bool // its owner is marked
	marked time.Time
}

func (m *table) prior() []prior {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]prior, len(m.rows))
	for b, r := range m.rows {
		out[b] = prior{memRow: r}
		if w := m.workers[r.owner]; w != nil {
			out[b].gone, out[b].marked = w.gone, w.marked
		}
	}
	return out
}

// taken judges a claim that got a bucket: nobody's, an expired lease, or one of a
// worker that is marked; and nobody who heeds his context works on it any more
// (P-22, P-23).
func (w *world) taken(p *proc, bucket int, before prior) {
	if before.owner == p.id {
		return
	}
	live := before.owner != uuid.Nil && before.expiry.After(time.Now())
	switch {
	case live && !before.gone:
		w.violate("%v took bucket %d of %v, whose lease lives", p, bucket, before.owner[0])
	case live && before.renewed.After(before.marked):
		w.violate("%v took bucket %d of %v, which was renewed since the mark", p, bucket, before.owner[0])
	case before.gone:
		w.excuse(bucket, before.owner)
	}
	w.mu.Lock()
	var faults []string
	for _, s := range w.stints {
		if s.bucket == bucket && s.p != p && !s.idle && !s.finished && !s.grant.excused && s.p.well() {
			faults = append(faults, fmt.Sprintf("%v took bucket %d while a handler of %v runs in it", p, bucket, s.p))
		}
	}
	w.mu.Unlock()
	for _, f := range faults {
		w.violate("%s", f)
	}
}

// well: the process lives, does not stand still, and its handlers heed their
// contexts; of late, too.
func (p *proc) well() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.dead() && p.thawed == nil && p.hung == nil && time.Since(p.odd) > 2*time.Second
}

// lock has somebody lock a row for a time.
func (w *world) lock(bucket int, d time.Duration) {
	m := w.table
	m.mu.Lock()
	m.locked[bucket] = true
	m.mu.Unlock()
	w.later(d, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.locked, bucket)
	})
}

// shut has somebody lock a worker's presence for a time.
func (w *world) shut(id uuid.UUID, d time.Duration) {
	m := w.table
	m.mu.Lock()
	m.shut[id] = true
	m.mu.Unlock()
	w.later(d, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.shut, id)
	})
}

// relinquish is what an operator does.
func (m *table) relinquish(id uuid.UUID) []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	var freed []int
	for b := range m.rows {
		if m.rows[b].owner == id && !m.locked[b] {
			m.rows[b] = memRow{}
			freed = append(freed, b)
		}
	}
	if len(freed) > 0 {
		m.notify()
	}
	return freed
}

// alive are the processes that neither ended nor are about to.
func (w *world) alive() []*proc {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []*proc
	for _, p := range w.procs {
		if !p.dead() && !p.left() {
			out = append(out, p)
		}
	}
	return out
}

// write is what a holder's checkpoint does: accepted for the rows that name the
// worker (P-24).
func (w *world) write(p *proc, stints []*stint) {
	owners := w.table.owners()
	w.mu.Lock()
	var faults []string
	for _, s := range stints {
		if owners[s.bucket] != p.id {
			continue // fenced off
		}
		if !p.dead() && (s.closed || s.finished || p.stints[s.bucket] != s) {
			faults = append(faults, fmt.Sprintf("%v writes for bucket %d in tenure %d, which has ended", p, s.bucket, s.t.ID))
		}
		for _, o := range w.stints {
			if o.bucket == s.bucket && o.p != p && o.live() && !o.grant.excused {
				faults = append(faults, fmt.Sprintf("%v writes for bucket %d, which %v trusts", p, s.bucket, o.p))
			}
		}
	}
	w.mu.Unlock()
	for _, f := range faults {
		w.violate("%s", f)
	}
}
