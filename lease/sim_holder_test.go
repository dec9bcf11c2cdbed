package lease_test

import (
	"context"
	"fmt"
	"time"

	"github.com/suisha-go/suisha/lease"
)

// Assign implements lease.Holder.
func (p *proc) Assign(tenures []*lease.Tenure) {
	w := p.w
	for _, t := range tenures {
		w.mu.Lock()
		before := p.stints[t.Bucket]
		running := before != nil && !before.finished && !p.dead()
		s := &stint{p: p, t: t, bucket: t.Bucket, grant: p.grants[t.Bucket]}
		p.stints[t.Bucket] = s
		w.stints = append(w.stints, s)
		w.mu.Unlock()
		if running { // P-21
			w.violate("%v opens a tenure of bucket %d while an earlier one runs", p, t.Bucket)
		}
	}
	w.check(p.String() + " opens")
}

func (p *proc) stintOf(t *lease.Tenure) *stint {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	s := p.stints[t.Bucket]
	if s == nil || s.t != t {
		return nil
	}
	return s
}

// ends closes and finishes a stint.
func (p *proc) ends(s *stint, finished bool) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	s.closed = true
	s.finished = s.finished || finished
}

// Lose implements lease.Holder.
func (p *proc) Lose(t *lease.Tenure) {
	s := p.stintOf(t)
	if s == nil {
		p.w.violate("%v loses tenure %d of bucket %d, which it does not have", p, t.ID, t.Bucket)
		return
	}
	p.causeless(s)
	p.wait(p.hanging())
	p.wait(after(p.heeds(t)))
	p.gate(100 + 2*t.Bucket)
	p.settle(s)
	p.ends(s, true)
}

// Drain implements lease.Holder.
func (p *proc) Drain(ctx context.Context, t *lease.Tenure, r lease.Reason, unreleased func(error)) error {
	s := p.stintOf(t)
	// Twice seen, 100 ms apart, by a worker that learns of it a moment later (P-10).
	if s != nil && r == lease.Rebalanced && !s.resigned && !p.w.hadKeiro() && !p.w.table.others(p.id, 100*time.Millisecond) {
		p.w.violate("%v gives bucket %d to nobody that it can have seen twice", p, t.Bucket)
	}
	if s == nil {
		p.w.violate("%v drains tenure %d of bucket %d, which it does not have", p, t.ID, t.Bucket)
		return lease.ErrLost
	}
	defer p.ends(s, true)
	p.w.mu.Lock()
	s.draining = true
	p.w.mu.Unlock()
	tell := unreleased
	unreleased = func(err error) {
		p.w.mu.Lock()
		s.draining = false
		p.w.mu.Unlock()
		tell(err)
	}
	p.work(t, unreleased)
	p.gate(100 + 2*t.Bucket)
	p.settle(s)
	if p.dead() {
		return errDead
	}
	if !t.Trusted() {
		return lease.ErrLost
	}
	p.ends(s, false)
	err := p.release(ctx, t)
	if err != nil {
		unreleased(err)
	}
	return err
}

// work is what a handler still does: some time, or until it hangs no more. Past
// the deadline that is said.
func (p *proc) work(t *lease.Tenure, unreleased func(error)) {
	deadline := time.NewTimer(simDrainTimeout + time.Duration(t.Bucket)*time.Nanosecond)
	defer deadline.Stop()
	// From nothing to 1.5 s, by bucket and tenure.
	takes := time.Duration((p.w.s.seed*31+uint64(t.Bucket)*7+t.ID*13+uint64(p.n)*3)%16) * 100 * time.Millisecond
	handler := time.NewTimer(takes + time.Duration(t.Bucket)*time.Nanosecond)
	defer handler.Stop()
	lost := t.Context().Done()
	hanging := p.hanging()
	if hanging != nil {
		select {
		case <-hanging:
			return
		case <-p.gone:
			return
		case <-deadline.C:
		}
		unreleased(errStillRuns)
		p.wait(hanging)
		return
	}
	select {
	case <-handler.C:
	case <-lost:
	case <-p.gone:
	}
}

// hanging is closed when the handlers hang no more; nil when they do not hang.
func (p *proc) hanging() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hung
}

// wait waits for what may be nil, or for death.
func (p *proc) wait(c <-chan struct{}) {
	if c == nil {
		return
	}
	select {
	case <-c:
	case <-p.gone:
	}
}

// leftBehind finds fault with a worker that has left while a bucket of it drains in
// good order (P-18).
func (p *proc) leftBehind() {
	if p.dead() {
		return
	}
	p.w.mu.Lock()
	var faults []string
	for _, s := range p.w.stints {
		if s.p == p && s.draining && !s.finished && s.t.Context().Err() == nil {
			faults = append(faults, fmt.Sprintf("%v has left while bucket %d drains", p, s.bucket))
		}
	}
	p.w.mu.Unlock()
	for _, f := range faults {
		p.w.violate("%s", f)
	}
}

// heeds is how long a handler takes to heed the end of its context: less than the
// margin of trust, which is there for that.
func (p *proc) heeds(t *lease.Tenure) time.Duration {
	tenths := (p.w.s.seed*17 + uint64(t.Bucket)*5 + t.ID*11 + uint64(p.n)*3) % 16
	return time.Millisecond + time.Duration(tenths)*100*time.Millisecond + time.Duration(t.Bucket)*37*time.Microsecond
}

// causeless finds fault with a loss of what is still the worker's and trusted
// (P-8).
func (p *proc) causeless(s *stint) {
	owner := p.w.table.owners()[s.bucket]
	p.w.mu.Lock()
	same := p.grants[s.bucket] == s.grant && !s.grant.excused
	p.w.mu.Unlock()
	if same && owner == p.id && s.t.Left() > 0 {
		p.w.violate("%v lets go of bucket %d, which is its own", p, s.bucket)
	}
}

// settle begins no further checkpoint, and waits for the one that is on its way.
func (p *proc) settle(s *stint) {
	p.w.mu.Lock()
	s.idle, s.quiet = true, true
	p.w.mu.Unlock()
	p.mu.Lock()
	written := p.flushing
	p.mu.Unlock()
	p.wait(written)
}

// release tries for some seconds, as shardpub does.
func (p *proc) release(ctx context.Context, t *lease.Tenure) (err error) {
	began, backoff, unanswered := time.Now(), 10*time.Millisecond, false
	for time.Since(began) < simReleaseTime {
		if p.dead() {
			return errDead
		}
		if !t.Trusted() {
			return lease.ErrLost
		}
		try, cancel := context.WithTimeout(ctx, simReleaseTry)
		var released, mine bool
		released, mine, err = p.line.finish(try, t.Bucket)
		cancel()
		switch {
		case err != nil:
			unanswered = true
		case released, unanswered && !mine && t.Trusted():
			return nil
		case !mine:
			return lease.ErrLost
		}
		p.wait(after(backoff))
		backoff = min(2*backoff, time.Second)
	}
	return err
}

func after(d time.Duration) <-chan struct{} {
	c := make(chan struct{})
	time.AfterFunc(d, func() { close(c) })
	return c
}
