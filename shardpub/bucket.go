package shardpub

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/suisha-go/suisha/internal/clock"
	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/lease"
)

// bucket is one tenure of one bucket: what was read ahead, what is out, and how
// far it is settled. A bucket without events has no goroutine.
type bucket struct {
	sub    *subscription
	tenure *lease.Tenure
	number int
	base   context.Context //nolint:containedctx // parent of its messages' contexts
	cancel context.CancelCauseFunc
	refuse func() error // why nothing may be said of a delivery any more

	pen chan struct{} // holds one while a statement writes the checkpoint

	mu      sync.Mutex // guards what follows
	lanes   *lanes     // nil until opened
	opened  kiroku.Position
	flushed kiroku.Position // what the checkpoint row is known to hold
	settles uint64          // of the lanes, when they were written last
	stored  bool            // suisha.acks may have a row of the bucket
	refused int             // size of the event that was refused last, until there is room for it
	running int             // goroutines in work
	stopped bool            // no further hand-out
	told    bool            // OnAssigned has returned; the feed brings events
	given   bool            // it was released or lost: no checkpoint is written any more
	out     []*entry        // handed out; each knows its place
	streak  int             // events given up in a row for an exhausted budget (P-38)
	until   time.Time       // backing off until
	lastErr error

	dirty atomic.Bool   // its checkpoint is to be written; see flusher.mark
	quit  chan struct{} // closed by stop
	quiet chan struct{} // closed when stopped and nothing runs
}

// flight is what Status says of an event that is out.
type flight struct {
	since   time.Time
	attempt int
	waiting bool // between two deliveries
	place   int  // in the bucket's out
}

func newBucket(s *subscription, t *lease.Tenure) *bucket {
	b := &bucket{
		sub:    s,
		tenure: t,
		number: t.Bucket,
		pen:    make(chan struct{}, 1),
		quit:   make(chan struct{}),
		quiet:  make(chan struct{}),
	}
	b.base, b.cancel = context.WithCancelCause(s.values)
	b.refuse = func() error { return context.Cause(b.base) }
	context.AfterFunc(t.Context(), func() {
		b.cancel(context.Cause(t.Context()))
		b.stop()
	})
	return b
}

// open gives the bucket its place in the log, and what was settled above it. It
// reports whether the bucket is still wanted.
func (b *bucket) open(p place) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return false
	}
	b.lanes = newLanes(b.sub.cfg.Concurrency, p.checkpoint, p.settled)
	b.opened, b.flushed, b.stored, b.lastErr = p.checkpoint, p.checkpoint, p.stored, nil
	return true
}

// trusted is the inline check at every hand-out and verdict (P-22). A lease
// that can no longer be believed ends the tenure here and now.
func (b *bucket) trusted() bool { return b.trustedAt(clock.Now()) }

func (b *bucket) trustedAt(now time.Time) bool {
	if b.tenure.TrustedAt(now) {
		return true
	}
	b.tenure.End(lease.ErrLost)
	b.sub.wake()
	return false
}

// room says what the feed may bring.
func (b *bucket) room() room {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.roomLocked()
}

func (b *bucket) roomLocked() room {
	if b.lanes == nil || !b.told {
		return room{}
	}
	r := room{idle: b.lanes.idle(), fresh: b.lanes.read == b.opened}
	free := b.sub.cfg.PrefetchCount - b.lanes.window()
	share := b.sub.byteShare()
	fits := b.lanes.bytes <= share/2 && b.lanes.bytes+b.refused <= share
	if free >= b.sub.pageRoom && fits || b.lanes.window() == 0 {
		r.free = free
	}
	return r
}

// offer queues an event; false when there is no room for it. A single event
// larger than the bound passes alone (P-33).
func (b *bucket) offer(e *entry) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return false
	}
	full := b.lanes.window() >= b.sub.cfg.PrefetchCount || b.lanes.bytes+e.size > b.sub.byteShare()
	if full && b.lanes.window() > 0 {
		b.refused = e.size
		return false
	}
	b.refused = 0
	if !b.lanes.push(e) {
		b.sub.node.flusher.mark(b) // the mark may have moved
		return true
	}
	b.pumpLocked()
	return true
}

// advance records how far the log was read for this bucket. Its checkpoint follows
// with the next sweep, or at once when it is far behind.
func (b *bucket) advance(read kiroku.Position) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lanes.advance(read)
	if b.lanes.mark()-b.flushed >= farBehind {
		b.sub.node.flusher.mark(b)
	}
}

// pumpLocked starts as many workers as there are lanes that may go out.
func (b *bucket) pumpLocked() {
	for !b.stopped && b.running < b.lanes.width && b.lanes.waitingFor(b.running) {
		b.running++
		go b.work()
	}
}

// take hands the next event to a worker; without one the worker is done. The
// feed hears of a bucket that runs dry.
func (b *bucket) take() (*entry, bool) {
	now := clock.Now()
	ok := b.trustedAt(now)
	b.mu.Lock()
	defer b.mu.Unlock()
	if ok && !b.stopped {
		if e, found := b.lanes.next(); found {
			e.flight = flight{since: now, place: len(b.out)}
			b.out = append(b.out, e)
			if b.lanes.idle() {
				b.sub.node.feed.nudge()
			}
			return e, true
		}
	}
	b.running--
	b.quietLocked()
	return nil, false
}

// landLocked: the event is not out any more.
func (b *bucket) landLocked(e *entry) {
	last := len(b.out) - 1
	moved := b.out[last]
	b.out[e.flight.place], moved.flight.place = moved, e.flight.place
	b.out[last] = nil
	b.out = b.out[:last]
}

// settled ends an event for good, and so many of those behind it in its stream. The
// feed hears of room that there is again.
func (b *bucket) settled(e *entry, along int) {
	b.mu.Lock()
	before := b.roomLocked()
	b.landLocked(e)
	b.lanes.settle(e, along)
	b.pumpLocked() // others may have waited for the mark to move
	after := b.roomLocked()
	b.mu.Unlock()
	if before.free <= 0 && after.free > 0 {
		b.sub.node.feed.nudge()
	}
	b.sub.node.flusher.mark(b)
}

// enter counts OnAssigned among what runs; false when the bucket goes already.
func (b *bucket) enter() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return false
	}
	b.running++
	return true
}

func (b *bucket) exit() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running--
	b.pumpLocked() // what came while OnAssigned was counted
	b.quietLocked()
}

// begin has the feed bring events: OnAssigned, if there is one, has returned.
// A bucket that went meanwhile without waiting for it was never there.
func (b *bucket) begin(at kiroku.Position) {
	b.mu.Lock()
	gone := b.stopped && b.running == 0
	b.told = !gone
	b.mu.Unlock()
	if !gone {
		b.observe(Event{Kind: BucketAssigned, Position: at})
	}
}

func (b *bucket) wasTold() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.told
}

// left takes an event back that was not settled: the bucket goes.
func (b *bucket) left(e *entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.landLocked(e)
}

// stop ends the hand-out, now and for good. It does not wait.
func (b *bucket) stop() {
	b.mu.Lock()
	if b.stopped {
		b.mu.Unlock()
		return
	}
	b.stopped = true
	close(b.quit)
	b.quietLocked()
	b.mu.Unlock()
	b.sub.node.feed.remove(b)
}

func (b *bucket) quietLocked() {
	if b.stopped && b.running == 0 {
		select {
		case <-b.quiet:
		default:
			close(b.quiet)
			b.lanes.clear()
		}
	}
}

// failed reports an error of this bucket alone.
func (b *bucket) failed(doing string, err error) {
	b.suffer(err)
	b.sub.node.report(&BucketError{Subscription: b.sub.name, Bucket: b.number, Doing: doing, Err: err})
}

// suffer remembers what keeps the bucket from its work, for the status.
func (b *bucket) suffer(err error) {
	b.mu.Lock()
	b.lastErr = err
	b.mu.Unlock()
}
