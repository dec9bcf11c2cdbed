package lease_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// Times of sessions, as shardpub's are.
const (
	// keepalive is when the server gives up a session that it does not hear.
	keepalive    = 45 * time.Second
	sessionTime  = 5 * time.Second
	sessionRetry = 500 * time.Millisecond
)

var (
	errSession = errors.New("the session has ended")
	errNotYet  = errors.New("another session has the lock still")
)

// backend is the server's end of a process's session, as long as that lives.
type backend struct {
	p     *proc
	lock  bool          // it holds the process's lock
	over  chan struct{} // closed when the server ends it
	lost  chan struct{} // closed when the process knows
	began time.Time
	ended time.Time // zero while it lives
	// fell: it ended with all others, at a crash or a restart of the server.
	fell bool
}

func (b *backend) open(c chan struct{}) bool {
	select {
	case <-c:
		return false
	default:
		return true
	}
}

// lockOf is the lock of a process. Its numbers are not in the order of the
// workers' ids.
func lockOf(p *proc) int64 { return int64(p.n*7919%1009 + 1) }

// end ends a backend on the server. Its process knows at once if it hears of it.
func (w *world) endBackend(b *backend, fell bool) {
	if b == nil || !b.open(b.over) {
		return
	}
	w.mu.Lock()
	b.ended, b.fell = time.Now(), fell
	w.mu.Unlock()
	close(b.over)
	w.note("the session of %v ends", b.p)
	if b.p.sky().kind != cuts {
		b.forget()
	}
}

// forget: the process knows that its session is over.
func (b *backend) forget() {
	b.p.mu.Lock()
	defer b.p.mu.Unlock()
	if b.open(b.lost) {
		close(b.lost)
	}
}

// abandon gives a connection up. The server hears of it when the process can reach
// it.
func (p *proc) abandon(b *backend) {
	if b == nil {
		return
	}
	b.forget()
	p.mu.Lock()
	p.abandoned = append(p.abandoned, b)
	p.mu.Unlock()
	if p.sky().kind != cuts && p.w.isDown() == 0 {
		p.reach()
	}
}

// reach tells the server of all connections that were given up.
func (p *proc) reach() {
	p.mu.Lock()
	all := p.abandoned
	p.abandoned = nil
	p.mu.Unlock()
	for _, b := range all {
		p.w.endBackend(b, false)
	}
}

// current is the process's latest connection.
func (p *proc) current() *backend {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.backend
}

// halfOpen: the server hears nothing of the process any more, and gives its
// session up in the end.
func (p *proc) halfOpen() {
	b, sky := p.current(), p.sky()
	p.w.later(keepalive, func() {
		if p.dead() || p.sky() == sky {
			p.w.endBackend(b, false)
		}
	})
}

// session is the process's present connection, nil when it has none.
func (p *proc) session() *backend {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.backend == nil || !p.backend.open(p.backend.lost) {
		return nil
	}
	return p.backend
}

// connected waits for a session, like whoever sends a statement over it.
func (p *proc) connected(ctx context.Context) (*backend, error) {
	for {
		if b := p.session(); b != nil {
			return b, nil
		}
		t := time.NewTimer(7 * time.Millisecond)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, ctx.Err()
		case <-p.gone:
			t.Stop()
			return nil, errDead
		}
	}
}

// keepSession connects again and again, and takes the lock each time.
func (p *proc) keepSession() {
	random := rand.New(rand.NewPCG(p.w.s.seed, uint64(1000+p.n)))
	for !p.over() {
		b := p.dial()
		if b == nil {
			p.rest(sessionRetry)
			continue
		}
		p.prove(b)
		p.rest2(b.lost)
		p.gate(5)
		p.watch.Hold(0)
		// Mostly it is back at once; now and then it takes seconds.
		back := time.Duration(random.IntN(200)) * time.Millisecond
		if random.IntN(4) == 0 {
			back *= 25
		}
		p.rest(back + time.Millisecond)
	}
	if !p.dead() { // it left: it closes its connection
		p.w.endBackend(p.current(), false)
	}
}

// over: the process is dead, or has left.
func (p *proc) over() bool {
	select {
	case <-p.gone:
		return true
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *proc) rest(d time.Duration) { p.rest2(after(d + p.apart())) }

// rest2 waits for something, or for the end of the process.
func (p *proc) rest2(c <-chan struct{}) {
	select {
	case <-c:
	case <-p.gone:
	case <-p.done:
	}
}

// dial opens a connection.
func (p *proc) dial() *backend {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.w.t.Context()), sessionTime)
	defer cancel()
	b := &backend{p: p, over: make(chan struct{}), lost: make(chan struct{})}
	err := p.line.trip(ctx, 5, "connects", func() error {
		b.began = time.Now()
		return nil
	})
	if err != nil || p.over() {
		return nil
	}
	p.mu.Lock()
	p.backend = b
	p.mu.Unlock()
	return b
}

// prove takes the lock, when no earlier session of the process has it.
func (p *proc) prove(b *backend) {
	for !p.over() && b.open(b.lost) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(p.w.t.Context()), sessionTime)
		err := p.line.trip(ctx, 5, "takes its lock", func() error {
			if !b.open(b.over) {
				return errSession
			}
			return p.w.takeLock(b)
		})
		cancel()
		if err == nil && b.open(b.lost) {
			p.watch.Hold(lockOf(p))
			p.keeper.Wake()
			return
		}
		if errors.Is(err, errSession) {
			b.forget()
			return
		}
		p.rest(sessionRetry)
	}
}

// takeLock gives the lock to the backend, if nobody has it.
func (w *world) takeLock(b *backend) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o := w.locks[lockOf(b.p)]; o != nil && o != b && o.ended.IsZero() {
		return errNotYet
	}
	w.locks[lockOf(b.p)] = b
	b.lock = true
	return nil
}

// holder is who holds the lock, or held it last.
func (w *world) holder(lock int64) *backend {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.locks[lock]
}

// fall ends all sessions: the server crashed, or was restarted.
func (w *world) fall(restart bool) {
	w.mu.Lock()
	var all []*backend
	for _, p := range w.procs {
		p.mu.Lock()
		if p.backend != nil {
			all = append(all, p.backend)
		}
		all = append(all, p.abandoned...)
		p.mu.Unlock()
	}
	close(w.fallen)
	w.fallen = make(chan struct{})
	w.fell = time.Now()
	if restart {
		w.restarted = w.fell
	}
	w.mu.Unlock()
	if restart && !w.fault.ageless {
		w.table.mu.Lock()
		w.table.began = time.Now()
		w.table.mu.Unlock()
	}
	for _, b := range all {
		w.endBackend(b, true)
	}
}
