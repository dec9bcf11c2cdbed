package lease_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/suisha-go/suisha/lease"
)

// Times of the holder, as shardpub's are.
const (
	simDrainTimeout = 5 * time.Second
	simReleaseTime  = 5 * time.Second
	simReleaseTry   = 3 * time.Second
	simFlushEvery   = 4 * time.Second
)

var errStillRuns = errors.New("a handler still runs")

// proc is a process with one worker: a real Keeper, and a Holder that works as
// shardpub's does.
type proc struct {
	w      *world
	n      int
	id     uuid.UUID
	weight int
	keeper *lease.Keeper
	watch  *lease.Watch
	line   *simLine
	stop   context.CancelFunc
	done   chan struct{}
	gone   chan struct{} // closed when the process dies

	stints map[int]*stint // the newest by bucket; guarded by w.mu
	grants map[int]*grant // the same

	mu       sync.Mutex // guards what follows
	thawed   chan struct{}
	hung     chan struct{}
	weather  *weather
	deaf     bool
	leaving  bool
	flushing chan struct{}
	backend  *backend
	// abandoned are connections that the server does not yet know to be given up.
	abandoned []*backend
	// odd is when it last stood still, or its handlers hung.
	odd time.Time
}

func (p *proc) String() string { return fmt.Sprintf("w%d", p.id[0]) }

// start runs a new worker.
func (w *world) start(weight int) *proc {
	w.mu.Lock()
	n := len(w.procs)
	p := &proc{
		w: w, n: n, id: id(byte(n*37%251 + 1)), weight: weight,
		done: make(chan struct{}), gone: make(chan struct{}), stints: map[int]*stint{}, grants: map[int]*grant{}, weather: &weather{},
	}
	w.procs = append(w.procs, p)
	w.mu.Unlock()
	var store lease.Store = &line{table: w.table}
	if w.fault.store != nil {
		store = w.fault.store(store)
	}
	p.line = &simLine{p: p, store: store, seen: map[int]sighting{}}
	p.watch = lease.NewWatch(nil, nil)
	cfg := w.fault.config
	cfg.Weight = weight
	k, err := lease.NewKeeper(p.line, p, lease.KeeperConfig{
		Config: cfg, Subscription: subscription(w.s.shards), Watch: p.watch,
		Identity: lease.Identity{Worker: p.id, Host: "sim", PID: n, Version: "sim"},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(w.s.seed, uint64(n)))
	k.SetRandom(func() float64 {
		p.gate(0)
		return random.Float64()
	})
	if w.fault.plan != nil {
		k.SetPlan(w.fault.plan)
	}
	p.keeper = k
	w.table.listen(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.deaf {
			k.Wake()
		}
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	p.stop = cancel
	go func() {
		defer close(p.done)
		_ = k.Run(ctx) // what was not released is the world's to see
		p.leftBehind()
	}()
	go p.flush()
	go p.keepSession()
	go p.watchNext()
	w.note("%v begins, weight %d", p, weight)
	return p
}

func (p *proc) dead() bool {
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

func (p *proc) left() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.leaving
}

// gate waits while the process stands still. What waits there goes on one by one,
// by its place.
func (p *proc) gate(place int) {
	for {
		p.mu.Lock()
		thawed := p.thawed
		p.mu.Unlock()
		if thawed == nil {
			return
		}
		p.wait(thawed)
		if p.dead() {
			return
		}
		time.Sleep(time.Duration(place+1) * 41 * time.Nanosecond)
	}
}

func (p *proc) sky() weather {
	p.mu.Lock()
	defer p.mu.Unlock()
	return *p.weather
}

// under has the weather for a time.
func (p *proc) under(sky weather, d time.Duration) {
	p.mu.Lock()
	p.weather = &sky
	p.mu.Unlock()
	p.w.later(d, func() {
		p.mu.Lock()
		over := p.weather == &sky
		if over {
			p.weather = &weather{}
		}
		p.mu.Unlock()
		if over {
			p.reach()
		}
	})
}

// blocked makes a channel that is there for a time.
func (p *proc) blocked(where *chan struct{}, d time.Duration) { //nolint:gocritic // it is set
	p.mu.Lock()
	defer p.mu.Unlock()
	if *where != nil {
		return
	}
	c := make(chan struct{})
	*where = c
	p.w.later(d, func() { p.unblock(where, c) })
}

// unblock closes the channel, if it is still that one; nil is any.
func (p *proc) unblock(where *chan struct{}, c chan struct{}) { //nolint:gocritic // it is set
	p.mu.Lock()
	defer p.mu.Unlock()
	if *where != nil && (c == nil || *where == c) {
		close(*where)
		*where = nil
		p.odd = time.Now()
	}
}

// kill ends the process for good. What it sent before still arrives.
func (p *proc) kill() {
	if p.dead() {
		return
	}
	close(p.gone)
	p.stop()
}

func (p *proc) leave() {
	p.mu.Lock()
	p.leaving = true
	p.mu.Unlock()
	p.stop()
}

// flush writes checkpoints for whatever is held and trusted, now and then.
func (p *proc) flush() {
	tick := time.NewTicker(simFlushEvery + time.Duration(p.n)*time.Microsecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-p.gone:
			return
		case <-p.done:
			return
		}
		p.gate(1)
		p.write()
	}
}

func (p *proc) write() {
	var stints []*stint
	p.w.mu.Lock()
	for b := range p.w.s.shards {
		if s := p.stints[b]; s != nil && s.live() && !s.quiet {
			stints = append(stints, s)
		}
	}
	written := make(chan struct{})
	p.mu.Lock()
	p.flushing = written
	p.mu.Unlock()
	p.w.mu.Unlock()
	defer close(written)
	if len(stints) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.w.t.Context()), simReleaseTry)
	defer cancel()
	_ = p.line.trip(ctx, 2, "writes", func() error { // the next one says the same
		p.w.write(p, stints)
		return nil
	})
}
