package lease_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/suisha-go/suisha/lease"
)

// table is the shard rows and the presence of one subscription in memory, for
// tests in a bubble: its clock is the bubble's.
type table struct {
	mu       sync.Mutex
	rows     []memRow
	workers  map[uuid.UUID]*memWorker
	heard    []func() // who listens
	beats    int
	claimed  int
	moved    int // of those, what was not the worker's own before
	claimLog []lease.Claim
	locked   map[int]bool       // rows that somebody else has locked
	shut     map[uuid.UUID]bool // presence that somebody else has locked
	began    time.Time          // of the server
	departed time.Time          // when a worker last left, began to, or was marked
}

type memRow struct {
	owner   uuid.UUID
	expiry  time.Time
	renewed time.Time // or claimed
}

type memWorker struct {
	weight        int
	leaving, gone bool
	lock          int64
	giving        []int
	marked        time.Time
	joined        time.Time
	heartbeat     time.Time
	expires       time.Time
}

func newTable(n int) *table {
	return &table{
		rows: make([]memRow, n), workers: map[uuid.UUID]*memWorker{},
		locked: map[int]bool{}, shut: map[uuid.UUID]bool{},
	}
}

func (m *table) listen(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.heard = append(m.heard, f)
}

// notify tells everybody. The caller holds mu.
func (m *table) notify() {
	for _, f := range m.heard {
		f()
	}
}

func (m *table) owners() []uuid.UUID {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]uuid.UUID, len(m.rows))
	for b, r := range m.rows {
		out[b] = r.owner
	}
	return out
}

func (m *table) counts() map[uuid.UUID]int {
	out := map[uuid.UUID]int{}
	for _, o := range m.owners() {
		out[o]++
	}
	return out
}

func (m *table) beatCount() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.beats
}

// line is one worker's way to the table.
type line struct {
	*table
	latency time.Duration
	mu      sync.Mutex
	cut     bool
	fail    error
}

func (l *line) set(cut bool, fail error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut, l.fail = cut, fail
}

// reach fails, or hangs until the deadline while the line is cut.
func (l *line) reach(ctx context.Context) error {
	if l.latency > 0 {
		time.Sleep(l.latency)
	}
	l.mu.Lock()
	cut, fail := l.cut, l.fail
	l.mu.Unlock()
	if cut {
		<-ctx.Done()
		return ctx.Err()
	}
	return fail
}

func (l *line) Join(ctx context.Context, p lease.Presence) error {
	if err := l.reach(ctx); err != nil {
		return err
	}
	if err := l.open(ctx, p.Identity.Worker); err != nil {
		return err
	}
	m := l.table
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	w := m.workers[p.Identity.Worker]
	if w == nil {
		w = &memWorker{joined: now}
		m.workers[p.Identity.Worker] = w
	}
	w.weight, w.lock, w.gone, w.heartbeat, w.expires = p.Weight, p.Lock, false, now, now.Add(p.TTL)
	m.notify()
	return nil
}

func (l *line) Beat(ctx context.Context, b lease.Beat) (lease.Snapshot, error) {
	if err := l.reach(ctx); err != nil {
		return lease.Snapshot{}, err
	}
	m := l.table
	m.mu.Lock()
	defer m.mu.Unlock()
	m.beats++
	now := time.Now()
	s := m.snapshot(now)
	w := m.workers[b.Worker]
	if s.Joined = w != nil; s.Joined && !m.shut[b.Worker] {
		w.heartbeat, w.expires = now, now.Add(b.TTL)
		w.weight, w.leaving, w.lock, w.giving, w.gone = b.Weight, b.Leaving, b.Lock, slices.Clone(b.Giving), false
	}
	if b.Leaving {
		m.departed = now
	}
	if s.Joined && w.gone { // its mark is still there: others may claim by it
		return s, nil
	}
	for _, bucket := range b.Renew {
		if m.rows[bucket].owner == b.Worker && !m.locked[bucket] {
			m.rows[bucket].expiry, m.rows[bucket].renewed = now.Add(b.TTL), now
			s.Renewed = append(s.Renewed, bucket)
		}
	}
	return s, nil
}

// snapshot is what a beat reads: as it was before what the beat itself changes.
// The caller holds mu.
func (m *table) snapshot(now time.Time) lease.Snapshot {
	var s lease.Snapshot
	for id, w := range m.workers {
		s.Workers = append(s.Workers, lease.Worker{
			ID: id, Weight: w.weight, Leaving: w.leaving, Lock: w.lock, Gone: w.gone, Giving: w.giving,
			Left: w.expires.Sub(now), Age: now.Sub(w.heartbeat),
		})
	}
	slices.SortFunc(s.Workers, func(a, b lease.Worker) int { return slices.Compare(a.ID[:], b.ID[:]) })
	for bucket, r := range m.rows {
		row := lease.Row{Bucket: bucket, Owner: r.owner}
		if r.owner != uuid.Nil {
			row.Expiry, row.Left = r.expiry.UnixMicro(), r.expiry.Sub(now)
		}
		s.Rows = append(s.Rows, row)
	}
	return s
}

func (l *line) Give(ctx context.Context, g lease.Giving) error {
	if err := l.reach(ctx); err != nil {
		return err
	}
	if err := l.open(ctx, g.Worker); err != nil {
		return err
	}
	l.table.mu.Lock()
	defer l.table.mu.Unlock()
	if w := l.workers[g.Worker]; w != nil {
		w.giving = slices.Clone(g.Buckets)
	}
	return nil
}

func (l *line) Claim(ctx context.Context, c lease.Claim) ([]int, error) {
	if err := l.reach(ctx); err != nil {
		return nil, err
	}
	m := l.table
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	var got []int
	for _, w := range c.Wanted {
		r := &m.rows[w.Bucket]
		if m.locked[w.Bucket] {
			continue
		}
		if r.owner == uuid.Nil || r.owner == c.Worker || r.owner == w.Expected && (r.expiry.Before(now) || m.goneWith(w, *r)) {
			if r.owner != c.Worker {
				m.moved++
			}
			*r = memRow{c.Worker, now.Add(c.TTL), now}
			got = append(got, w.Bucket)
		}
	}
	m.claimed += len(got)
	m.claimLog = append(m.claimLog, c)
	return got, nil
}

// goneWith: the owner is marked gone and has not renewed. The caller holds mu.
func (m *table) goneWith(w lease.Wanted, r memRow) bool {
	owner := m.workers[w.Expected]
	return w.Expiry == r.expiry.UnixMicro() && owner != nil && owner.gone && owner.marked.After(r.renewed)
}

func (l *line) Release(ctx context.Context, r lease.Release) ([]int, error) {
	if err := l.reach(ctx); err != nil {
		return nil, err
	}
	m := l.table
	m.mu.Lock()
	defer m.mu.Unlock()
	var got []int
	for _, b := range r.Buckets {
		if m.rows[b].owner == r.Worker && !m.locked[b] {
			m.rows[b] = memRow{}
			got = append(got, b)
		}
	}
	if len(got) > 0 {
		m.notify()
	}
	return got, nil
}

func (l *line) Leave(ctx context.Context, _ string, worker uuid.UUID) error {
	if err := l.reach(ctx); err != nil {
		return err
	}
	if err := l.open(ctx, worker); err != nil {
		return err
	}
	m := l.table
	m.mu.Lock()
	defer m.mu.Unlock()
	m.departed = time.Now()
	if slices.ContainsFunc(m.rows, func(r memRow) bool { return r.owner == worker }) {
		if w := m.workers[worker]; w != nil {
			w.leaving = true
		}
	} else {
		delete(m.workers, worker)
	}
	m.notify()
	return nil
}

var errDown = errors.New("the database is down")
