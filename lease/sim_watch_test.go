package lease_test

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// Times of watching, as lease.Watch has them.
const (
	simAwait   = 20 * time.Second
	simGrace   = time.Second
	simStrange = 15 * time.Second
	simBackoff = time.Second
)

// watchNext does for a process what lease.Watch does: whom to watch is the real
// one's to say, the way to the server is the simulation's (P-13).
func (p *proc) watchNext() {
	for !p.over() {
		if len(p.watch.Sessions()) == 0 {
			p.unrest(p.watch.Changed(), nil)
			continue
		}
		if err := p.watchOn(); err != nil {
			p.unrest(p.watch.Changed(), after(simBackoff+p.apart()))
		}
	}
}

// unrest waits for a change, for what is given, or for the end of the process.
func (p *proc) unrest(changed, c <-chan struct{}) {
	select {
	case <-changed:
	case <-c:
	case <-p.gone:
	case <-p.done:
	}
}

// watchOn watches on one connection, until that breaks or there is nobody to watch.
func (p *proc) watchOn() error {
	p.w.mu.Lock()
	fallen := p.w.fallen
	p.w.mu.Unlock()
	alive := map[int64]bool{}
	for !p.over() {
		sessions := p.watch.Sessions()
		if len(sessions) == 0 {
			return nil
		}
		for _, lock := range sessions {
			if err := p.look(lock, alive, fallen); err != nil {
				return err
			}
		}
	}
	return nil
}

// ask runs a short statement of the watch.
func (p *proc) ask(fallen <-chan struct{}, doing string, f func()) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.w.t.Context()), sessionTime)
	defer cancel()
	return p.line.trip(ctx, 7, doing, func() error {
		select {
		case <-fallen:
			return errSession
		default:
		}
		f()
		return nil
	})
}

// look watches one session (P-14).
func (p *proc) look(lock int64, alive map[int64]bool, fallen <-chan struct{}) error {
	var holder *backend
	if err := p.ask(fallen, "looks", func() { holder = p.w.holder(lock) }); err != nil {
		return err
	}
	if holder != nil && holder.open(holder.over) {
		alive[lock] = true
		ended, err := p.await(holder, fallen)
		if err != nil || !ended {
			return err
		}
	}
	grace := p.w.strange
	if alive[lock] {
		grace = p.w.grace
	}
	delete(alive, lock)
	return p.mark(lock, grace, fallen)
}

// await waits for the end of a session; a change of whom to watch ends it, too.
func (p *proc) await(b *backend, fallen <-chan struct{}) (ended bool, err error) {
	limit := time.NewTimer(simAwait + p.apart())
	defer limit.Stop()
	select {
	case <-b.over:
		return true, p.ask(fallen, "sees the end of a session", func() {})
	case <-fallen:
		return false, errSession
	case <-p.watch.Changed():
	case <-limit.C:
	case <-p.gone:
	case <-p.done:
	}
	return false, nil
}

// mark waits for the session to come back, and marks its workers if neither it nor
// a beat of theirs does.
func (p *proc) mark(lock int64, grace time.Duration, fallen <-chan struct{}) error {
	var suspects map[uuid.UUID]time.Time
	if err := p.ask(fallen, "suspects", func() { suspects = p.w.table.suspects(lock) }); err != nil {
		return err
	}
	if len(suspects) == 0 {
		p.unrest(p.watch.Changed(), after(simGrace+p.apart()))
		return nil
	}
	p.rest(grace)
	if p.over() {
		return nil
	}
	return p.ask(fallen, "marks", func() {
		holder := p.w.holder(lock)
		free := holder == nil || !holder.open(holder.over)
		if p.w.fault.blind {
			suspects = p.w.table.suspects(lock)
		}
		for _, id := range p.w.table.mark(lock, suspects, free) {
			p.w.note("%v marks %v", p, id[0])
			p.w.deserved(id, holder, p.w.table.beaten(id))
		}
	})
}

// deserved judges a mark: the worker has no session, has not beaten for all of its
// grace, and had longer after all sessions ended at once (P-14, P-16).
func (w *world) deserved(id uuid.UUID, b *backend, heartbeat time.Time) {
	w.mu.Lock()
	var p *proc
	for _, o := range w.procs {
		if o.id == id {
			p = o
		}
	}
	fell, restarted := w.fell, w.restarted
	w.mu.Unlock()
	if p == nil || p.dead() || p.over() {
		return
	}
	switch {
	case !heartbeat.After(restarted):
		w.violate("%v is marked gone by a server that has not heard it", p)
	case b == nil || b.open(b.over):
		w.violate("%v is marked gone while it has its session", p)
	case time.Since(heartbeat) < simGrace:
		w.violate("%v is marked gone %v after a beat", p, time.Since(heartbeat))
	case b.fell && b.ended.Equal(fell) && time.Since(fell) < simStrange:
		w.violate("%v is marked gone %v after the server fell", p, time.Since(fell))
	}
}
