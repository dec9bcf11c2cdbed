//go:build unix

package main

import (
	"context"
	_ "embed"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"
)

//go:embed sql/backend.sql
var backendSQL string

//go:embed sql/hold_lease.sql
var holdLeaseSQL string

//go:embed sql/hold_checkpoint.sql
var holdCheckpointSQL string

//go:embed sql/hold_presence.sql
var holdPresenceSQL string

// kinds are all faults there are.
func kinds() []kind {
	return []kind{
		{"sigkill", classProcess, 10, sigkill},
		{"lost", classProcess, 3, lost},
		{"freeze-short", classProcess, 6, func(ctx context.Context, s *storm, rng *rand.Rand, i *incident) bool {
			return freeze(ctx, s, rng, i, between(rng, s.o.ttl/10, s.o.ttl*8/10))
		}},
		{"freeze-long", classProcess, 7, func(ctx context.Context, s *storm, rng *rand.Rand, i *incident) bool {
			return freeze(ctx, s, rng, i, between(rng, s.o.ttl*11/10, s.o.ttl*5/2))
		}},
		{"stop", classPlanned, 6, stopOne},
		{"roll", classPlanned, 2, roll},
		{"scale", classPlanned, 2, scale},
		{"backend", classSession, 8, func(ctx context.Context, s *storm, rng *rand.Rand, i *incident) bool {
			return endBackends(ctx, s, rng, i, 1)
		}},
		{"backends", classSession, 3, func(ctx context.Context, s *storm, rng *rand.Rand, i *incident) bool {
			return endBackends(ctx, s, rng, i, 1000)
		}},
		{"cut", classNetwork, 4, lineFault(func(p *proxy) { p.cut() }, func(*proxy) {}, 0, 1)},
		{"down", classNetwork, 4, lineFault(func(p *proxy) { p.setRefuse(true); p.cut() }, func(p *proxy) { p.setRefuse(false) }, 3, 20)},
		{"half-open", classNetwork, 6, lineFault((*proxy).freeze, (*proxy).thaw, 3, 25)},
		{"strand", classNetwork, 3, lineFault((*proxy).strand, func(*proxy) {}, 0, 1)},
		{"latency", classNetwork, 4, lineFault(func(p *proxy) { p.setDelay(100 * time.Millisecond) }, func(p *proxy) { p.setDelay(0) }, 10, 25)},
		{"mute", classLesser, 4, lineFault(func(p *proxy) { p.setMuted(true) }, func(p *proxy) { p.setMuted(false) }, 10, 25)},
		{"restart", classServer, 1, restart},
		{"crash", classServer, 1, crash},
		{"lock-lease", classLesser, 3, func(ctx context.Context, s *storm, rng *rand.Rand, _ *incident) bool {
			return lockRow(ctx, s, holdLeaseSQL, rng.IntN(s.o.buckets), 0)
		}},
		{"lock-queue", classLesser, 2, func(ctx context.Context, s *storm, rng *rand.Rand, _ *incident) bool {
			return lockRow(ctx, s, holdLeaseSQL, rng.IntN(s.o.buckets), queueLength)
		}},
		{"lock-checkpoint", classLesser, 2, func(ctx context.Context, s *storm, rng *rand.Rand, _ *incident) bool {
			return lockRow(ctx, s, holdCheckpointSQL, rng.IntN(s.o.buckets), 0)
		}},
		{"lock-presence", classLesser, 2, lockPresence},
	}
}

// replace ends one process; another comes within so long. It returns the one that
// ended, nil when there was none.
func (s *storm) replace(ctx context.Context, rng *rand.Rand, i *incident, within time.Duration, end func(*process)) *process {
	p := s.fleet.take(rng)
	if p == nil {
		return nil
	}
	i.hit(p)
	end(p)
	pause(ctx, between(rng, 0, within))
	s.spawn(ctx, rng)
	return p
}

// sigkill ends a process without a word.
func sigkill(ctx context.Context, s *storm, rng *rand.Rand, i *incident) bool {
	return s.replace(ctx, rng, i, 4*time.Second, func(p *process) {
		s.noteKill(p)
		s.fleet.kill(p)
	}) != nil
}

// lost ends a process together with its line: the server hears nothing of it.
func lost(ctx context.Context, s *storm, rng *rand.Rand, i *incident) bool {
	p := s.replace(ctx, rng, i, 4*time.Second, s.fleet.lose)
	if p == nil {
		return false
	}
	pause(ctx, 2*s.o.ttl)
	p.proxy.close()
	return true
}

// freeze stops a process in the middle of whatever it does.
func freeze(ctx context.Context, s *storm, rng *rand.Rand, i *incident, d time.Duration) bool {
	p := s.fleet.take(rng)
	if p == nil {
		return false
	}
	defer s.fleet.give(p)
	i.hit(p)
	p.signal(syscall.SIGSTOP)
	defer p.signal(syscall.SIGCONT)
	pause(ctx, d)
	return true
}

// stopOne asks a process to leave.
func stopOne(ctx context.Context, s *storm, rng *rand.Rand, i *incident) bool {
	return s.replace(ctx, rng, i, 2*time.Second, s.leave) != nil
}

func (s *storm) leave(p *process) {
	if !s.fleet.stop(p) {
		s.trouble("%s did not leave within 25 s of SIGTERM", p.name)
	}
}

// roll replaces all processes, each after its successor has come.
func roll(ctx context.Context, s *storm, rng *rand.Rand, i *incident) bool {
	all := s.fleet.takeAll()
	if len(all) == 0 {
		return false
	}
	i.hit(all...)
	for n, p := range all {
		if ctx.Err() != nil {
			s.fleet.give(all[n:]...)
			return true
		}
		s.spawn(ctx, rng)
		pause(ctx, between(rng, 200*time.Millisecond, time.Second))
		s.leave(p)
	}
	return true
}

// scale makes the fleet one, then eight, then two, then what it was.
func scale(ctx context.Context, s *storm, rng *rand.Rand, i *incident) bool {
	s.shrink(ctx, rng, i, 1)
	pause(ctx, between(rng, time.Second, 2*time.Second))
	s.grow(ctx, rng, i, 8)
	pause(ctx, between(rng, 2*time.Second, 4*time.Second))
	s.shrink(ctx, rng, i, 2)
	pause(ctx, between(rng, time.Second, 2*time.Second))
	s.grow(context.WithoutCancel(ctx), rng, i, s.o.workers)
	return true
}

// grow starts processes until there are so many.
func (s *storm) grow(ctx context.Context, rng *rand.Rand, i *incident, n int) {
	for len(s.fleet.live()) < n && ctx.Err() == nil {
		p := s.spawn(ctx, rng)
		if p == nil {
			return
		}
		i.hit(p)
	}
}

// shrink asks processes to leave, one after the other, until there are only so
// many, or other faults have the rest.
func (s *storm) shrink(ctx context.Context, rng *rand.Rand, i *incident, n int) {
	for len(s.fleet.live()) > n && ctx.Err() == nil {
		p := s.fleet.take(rng)
		if p == nil {
			return
		}
		i.hit(p)
		s.leave(p)
	}
}

// endBackends ends backends of a worker, whatever they are for.
func endBackends(ctx context.Context, s *storm, rng *rand.Rand, i *incident, most int) bool {
	p := s.fleet.take(rng)
	if p == nil {
		return false
	}
	defer s.fleet.give(p)
	i.hit(p)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_, err := s.db.pool.Exec(ctx, backendSQL, p.name, most)
	return err == nil
}

// lineFault breaks the line of one process for some tenths of a TTL.
func lineFault(broken, mend func(*proxy), least, most int) func(context.Context, *storm, *rand.Rand, *incident) bool {
	return func(ctx context.Context, s *storm, rng *rand.Rand, i *incident) bool {
		p := s.fleet.take(rng)
		if p == nil {
			return false
		}
		defer s.fleet.give(p)
		i.hit(p)
		broken(p.proxy)
		defer mend(p.proxy)
		pause(ctx, between(rng, s.o.ttl/10*time.Duration(least), s.o.ttl/10*time.Duration(most)))
		return true
	}
}

// restart restarts the server as an operator would.
func restart(ctx context.Context, s *storm, _ *rand.Rand, _ *incident) bool {
	return s.breakServer(ctx, func(context.Context) error { return nil })
}

// crash ends the server at once and leaves it down for a while.
func crash(ctx context.Context, s *storm, rng *rand.Rand, _ *incident) bool {
	down := between(rng, 0, s.o.ttl*3/2)
	return s.breakServer(ctx, func(ctx context.Context) error {
		err := s.db.server.Kill(ctx)
		pause(ctx, down)
		return err
	})
}

func (s *storm) breakServer(ctx context.Context, first func(context.Context) error) bool {
	if !s.server.TryLock() {
		return false
	}
	defer s.server.Unlock()
	if err := first(ctx); err != nil {
		s.trouble("cannot crash the server: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if err := s.db.server.Restart(ctx); err != nil {
		s.trouble("the server does not come back: %v", err)
	}
	return true
}

// queueLength is how many sessions wait for a row in a full lock queue.
const queueLength = 20

// lockRow locks one row of the subscription for two seconds. So many more sessions
// wait for the same lock meanwhile; all have ended when it returns. What becomes of
// them says nothing: the server may be ended meanwhile.
func lockRow(ctx context.Context, s *storm, sql string, which any, behind int) bool {
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	queue := s.db.sessions(within, behind)
	defer func() {
		for _, c := range queue {
			_ = c.Close(within)
		}
	}()
	tx, err := s.db.pool.Begin(within)
	if err != nil {
		return false
	}
	var waiting sync.WaitGroup
	defer waiting.Wait() // after the rollback, which lets them have the row
	defer func() { _ = tx.Rollback(within) }()
	if _, err := tx.Exec(within, sql, subscription, which); err != nil {
		return false
	}
	for _, c := range queue {
		waiting.Go(func() { _, _ = c.Exec(within, sql, subscription, which) })
	}
	pause(ctx, 2*time.Second)
	return true
}

func lockPresence(ctx context.Context, s *storm, rng *rand.Rand, i *incident) bool {
	p := s.fleet.take(rng)
	if p == nil {
		return false
	}
	defer s.fleet.give(p)
	i.hit(p)
	return lockRow(ctx, s, holdPresenceSQL, p.name, 0)
}
