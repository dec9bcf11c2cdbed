package lease_test

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
)

// open waits as long as the worker's presence is locked. What changes it without
// skipping locked rows does.
func (l *line) open(ctx context.Context, worker uuid.UUID) error {
	for {
		l.table.mu.Lock()
		shut := l.table.shut[worker]
		l.table.mu.Unlock()
		if !shut {
			return nil
		}
		t := time.NewTimer(time.Millisecond)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
	}
}

// mark is what a neighbour does at the end of its grace: it marks those of its
// suspects that still say they hold the lock and have not beaten since, if the
// lock is free and the server neither young nor younger than their last beat
// (P-14, P-16).
func (m *table) mark(lock int64, suspects map[uuid.UUID]time.Time, free bool) (marked []uuid.UUID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !free || time.Since(m.began) <= 3*time.Second {
		return nil
	}
	for id, heartbeat := range suspects {
		w := m.workers[id]
		if w == nil || w.gone || w.lock != lock || !w.heartbeat.Equal(heartbeat) || !w.heartbeat.After(m.began) {
			continue
		}
		w.gone, w.marked = true, time.Now()
		m.departed = time.Now()
		marked = append(marked, id)
	}
	if len(marked) > 0 {
		m.notify()
	}
	slices.SortFunc(marked, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	return marked
}

// suspects are the workers that say they hold the lock, and when each last beat.
func (m *table) suspects(lock int64) map[uuid.UUID]time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[uuid.UUID]time.Time{}
	for id, w := range m.workers {
		if w.lock == lock && !w.gone {
			out[id] = w.heartbeat
		}
	}
	return out
}

// unlock takes all locks away.
func (m *table) unlock() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.locked)
	clear(m.shut)
}

// beaten is when the worker last beat.
func (m *table) beaten(id uuid.UUID) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.workers[id].heartbeat
}

// moves counts the buckets that came to a worker that did not own them.
func (m *table) moves() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.moved
}

// others tells whether another worker, alive and staying, has been there so long,
// or may have been until lately.
func (m *table) others(than uuid.UUID, least time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.departed.IsZero() && time.Since(m.departed) < 20*time.Second {
		return true
	}
	for id, w := range m.workers {
		if id != than && !w.gone && !w.leaving && time.Since(w.joined) >= least {
			return true
		}
	}
	return false
}
