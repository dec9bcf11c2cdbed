package lease_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/suisha-go/suisha/lease"
)

// mostProcs is how many workers there are at once.
const mostProcs = 6

// outcome is what came of a simulation.
type outcome struct {
	violation   string
	trace       []string
	fingerprint uint64
	settled     time.Duration // how long the shares took to be even
}

// fault is a mistake that is seeded into a simulation, to be found.
type fault struct {
	store  func(lease.Store) lease.Store   // put before the table of each worker
	plan   func(lease.View) lease.Decision // of each worker, instead of lease.Plan
	config lease.Config                    // of each worker
	grace  time.Duration                   // of the watches, instead of both of theirs
	// blind: a beat during the grace does not matter. ageless: the server does not
	// know when it began.
	blind, ageless bool
	kinds          []string // what shows it soonest; nil for all
}

func newWorld(t *testing.T, s schedule, f fault) *world {
	t.Helper()
	w := &world{
		t: t, s: s, table: newTable(s.shards), fault: f, began: time.Now(),
		locks: map[int64]*backend{}, fallen: make(chan struct{}), grace: simGrace, strange: simStrange,
	}
	if f.grace > 0 {
		w.grace, w.strange = f.grace, f.grace
	}
	w.table.began = w.began.Add(-time.Minute)
	return w
}

// simulate plays the schedule in a bubble.
func simulate(t *testing.T, s schedule, f fault) (o outcome) {
	t.Helper()
	return simulateFor(t, s, f, steadyFor)
}

// simulateFor plays the schedule and waits so long for a move when all is settled.
func simulateFor(t *testing.T, s schedule, f fault, steady time.Duration) (o outcome) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, s, f)
		w.steadyFor = steady
		for i, e := range s.steps {
			// No two things ever happen at the same instant.
			time.Sleep(e.after + time.Duration(i*i*977+331)*time.Nanosecond)
			if w.do(e); w.broken() {
				break
			}
			synctest.Wait()
			w.check(e.kind)
		}
		w.heal()
		synctest.Wait()
		o.settled = w.settle()
		w.end()
		o.violation, o.trace, o.fingerprint = w.violation, w.trace, w.fingerprint()
	})
	return o
}

// do lets one thing happen.
func (w *world) do(e event) {
	alive := w.alive()
	switch e.kind {
	case rests:
		return
	case joins:
		if len(alive) < mostProcs {
			w.start(e.n + 1)
		}
		return
	case outage:
		w.note("%v", e)
		w.storm(1 + e.n%2)
		w.later(e.last, func() { w.storm(0) })
		return
	case restart, fall:
		w.note("%v", e)
		w.storm(1)
		w.fall(e.kind == restart)
		w.later(e.last/8, func() { w.storm(0) })
		return
	case allFreeze:
		w.note("%v", e)
		for i, p := range alive {
			p.blocked(&p.thawed, e.last+time.Duration(i)*300*time.Millisecond)
		}
		return
	case lockRow:
		w.note("%v", e)
		w.lock(e.who%w.s.shards, e.last)
		return
	case keiro:
		w.startKeiro(e.n)
		return
	case keiroEnds:
		w.endKeiro(e.n%2 == 1)
		return
	case steps:
		w.note("%v", e)
		stepWall(e.last)
		return
	case sleeps:
		w.note("%v", e)
		sleepClock()
		for i, p := range alive {
			p.blocked(&p.thawed, e.last+time.Duration(i)*300*time.Microsecond)
		}
		w.later(e.last-time.Microsecond, wakeClock)
		return
	case stepsBack:
		w.note("%v", e)
		stepWall(-e.last)
		return
	}
	if len(alive) == 0 {
		return
	}
	p := alive[e.who%len(alive)]
	w.note("%v %v for %v", p, e.kind, e.last)
	p.suffer(e)
}

// suffer is what happens to one process.
func (p *proc) suffer(e event) {
	switch e.kind {
	case leaves:
		p.leave()
	case crashes:
		p.kill()
		p.halfOpen()
	case killed:
		p.kill()
		// What it has sent arrives, and then the server knows.
		p.w.later(p.sky().slow+10*time.Millisecond, func() { p.w.endBackend(p.current(), false) })
	case freezes:
		p.blocked(&p.thawed, e.last)
	case suspends:
		p.blocked(&p.thawed, e.last)
		p.w.endBackend(p.current(), false)
	case ends:
		p.w.endBackend(p.current(), false)
	case severs:
		p.under(weather{kind: cuts}, e.last)
		p.w.endBackend(p.current(), false)
	case cuts:
		p.under(weather{kind: cuts}, e.last)
		p.halfOpen()
	case lockWorker:
		p.w.shut(p.id, e.last)
	case fails, forgets:
		p.under(weather{kind: e.kind}, e.last)
	case slows:
		sky := weather{kind: slows, slow: time.Duration(e.n+1) * 400 * time.Millisecond}
		sky.back = sky.slow
		if e.n%2 == 1 { // the statement is done in time; the answer is late
			sky.slow, sky.back = 0, time.Duration(e.n)*time.Second+200*time.Millisecond
		}
		p.under(sky, e.last)
	case delays:
		p.under(weather{kind: delays, slow: time.Duration(e.n+2) * 1500 * time.Millisecond}, e.last)
	case hangs:
		p.blocked(&p.hung, e.last)
	case deafens:
		p.hear(false)
		p.w.later(e.last, func() { p.hear(true) })
	case robs:
		for _, b := range p.w.table.relinquish(p.id) {
			p.w.excuse(b, p.id)
		}
	case resigns:
		p.resign(e.n)
	}
}

func (p *proc) hear(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deaf = !on
}

// resign gives up the nth of the buckets that it has.
func (p *proc) resign(n int) {
	held := p.keeper.Status().Held
	if len(held) == 0 {
		return
	}
	p.w.mu.Lock()
	s := p.stints[held[n%len(held)]]
	if s != nil {
		s.resigned = true
	}
	p.w.mu.Unlock()
	if s != nil {
		p.keeper.Resign(p.w.t.Context(), s.t, 10*time.Second)
	}
}

// storm begins an outage, or ends it.
func (w *world) storm(down int) {
	w.mu.Lock()
	w.down = down
	procs := slices.Clone(w.procs)
	w.mu.Unlock()
	for _, p := range procs {
		if down == 0 && p.sky().kind != cuts {
			p.reach()
		}
	}
}

func (w *world) isDown() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.down
}

func (w *world) over() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended
}

func (w *world) endKeiro(crash bool) {
	w.mu.Lock()
	if len(w.keiros) == 0 {
		w.mu.Unlock()
		return
	}
	k := w.keiros[0]
	w.keiros = w.keiros[1:]
	w.mu.Unlock()
	w.note("keiro worker %v ends, crash %v", k.id[0], crash)
	k.end(crash)
}

// heal ends all faults.
func (w *world) heal() {
	w.mu.Lock()
	for _, t := range w.timers {
		t.Stop()
	}
	w.timers = nil
	w.down = 0
	w.table.unlock()
	wakeClock()
	procs := slices.Clone(w.procs)
	w.mu.Unlock()
	w.note("all faults end")
	for _, p := range procs {
		p.mu.Lock()
		p.weather, p.deaf = &weather{}, false
		p.mu.Unlock()
		p.reach()
		p.unblock(&p.thawed, nil)
		p.unblock(&p.hung, nil)
	}
}

// end kills whatever runs and waits for it.
func (w *world) end() {
	w.mu.Lock()
	w.ended = true
	for _, t := range w.timers {
		t.Stop()
	}
	procs, keiros := slices.Clone(w.procs), w.keiros
	w.mu.Unlock()
	for _, k := range keiros {
		k.end(true)
	}
	for _, p := range procs {
		p.kill()
	}
	for _, p := range procs {
		<-p.done
	}
	time.Sleep(time.Minute) // statements that hang reach their deadlines
	resetClock()
}
