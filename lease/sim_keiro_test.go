package lease_test

import (
	"time"

	"github.com/google/uuid"
)

// Times of keiro's workers.
const (
	keiroTTL   = 30 * time.Second
	keiroRenew = 10 * time.Second
)

// keiroWorker works by keiro's rules: it has no presence; a pass renews whatever
// is its own, claims one bucket below its fair share, and frees at once what is
// beyond it. Its own clock decides what has expired.
type keiroWorker struct {
	w    *world
	id   uuid.UUID
	skew time.Duration
	gone chan struct{}
}

func (w *world) startKeiro(n int) {
	w.mu.Lock()
	k := &keiroWorker{
		w: w, id: id(byte(200 + len(w.keiros))),
		skew: time.Duration(n-1) * 700 * time.Millisecond, gone: make(chan struct{}),
	}
	w.keiros = append(w.keiros, k)
	w.mixed = true
	w.mu.Unlock()
	w.note("keiro worker %v begins, its clock is off by %v", k.id[0], k.skew)
	go k.run()
}

// keiroHere: some of them work here.
func (w *world) keiroHere() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.keiros) > 0
}

// hadKeiro: some of them work here, or did.
func (w *world) hadKeiro() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mixed
}

func (k *keiroWorker) run() {
	tick := time.NewTicker(keiroRenew + time.Duration(k.id[0])*time.Microsecond)
	defer tick.Stop()
	for {
		k.pass()
		select {
		case <-tick.C:
		case <-k.gone:
			return
		}
	}
}

func (k *keiroWorker) pass() {
	if k.w.over() || k.w.isDown() > 0 {
		return
	}
	if claimed := k.reconcile(); claimed >= 0 {
		k.w.note("keiro worker %v claims %d", k.id[0], claimed)
	}
	k.w.check("keiro's pass")
}

// reconcile is keiro's pass on the table (S-30). It returns what it claimed, or -1.
func (k *keiroWorker) reconcile() int {
	m := k.w.table
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now().Add(k.skew)
	live := map[uuid.UUID]bool{k.id: true}
	for _, r := range m.rows {
		if r.owner != uuid.Nil && r.expiry.After(now) {
			live[r.owner] = true
		}
	}
	share := (len(m.rows) + len(live) - 1) / len(live)
	held, claimed := 0, -1
	for b := range m.rows {
		if r := &m.rows[b]; r.owner == k.id {
			r.expiry = now.Add(keiroTTL)
			held++
		}
	}
	for b := range m.rows {
		r := &m.rows[b]
		if held >= share || r.owner == k.id || r.owner != uuid.Nil && !r.expiry.Before(now) {
			continue
		}
		*r = memRow{owner: k.id, expiry: now.Add(keiroTTL)}
		held, claimed = held+1, b
		break
	}
	for b := len(m.rows) - 1; b >= 0 && len(live) > 1 && held > share; b-- {
		if m.rows[b].owner == k.id {
			m.rows[b] = memRow{}
			held--
		}
	}
	return claimed
}

// end stops the worker: in good order, or by a crash.
func (k *keiroWorker) end(crash bool) {
	close(k.gone)
	if crash {
		return
	}
	m := k.w.table
	m.mu.Lock()
	defer m.mu.Unlock()
	for b := range m.rows {
		if m.rows[b].owner == k.id {
			m.rows[b] = memRow{}
		}
	}
}
