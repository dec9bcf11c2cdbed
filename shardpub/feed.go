package shardpub

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/suisha-go/suisha/kiroku"
)

// Times of reading.
const (
	readBackoff  = 100 * time.Millisecond
	readBackoffX = 2 * time.Second
	minPatience  = 10 * time.Second // for one statement; more after one that took longer
	maxPatience  = 30 * time.Second // statement_timeout
)

// feed reads the log once for all buckets of a process. One goroutine runs it;
// buckets come and go from others.
type feed struct {
	node     *Node
	kick     chan struct{} // holds one wake
	patience time.Duration // of the running goroutine, like the next two
	size     int           // what an event costs, lately
	headroom headroom

	mu       sync.Mutex // guards what follows; taken before the Node's, a subscription's, a bucket's
	dir      *directory // used by the running goroutine only
	groups   *groups[*bucket]
	parked   map[*bucket]kiroku.Position // full ones, and those in OnAssigned: how far they have read
	anchors  anchors
	anchored int // how many there were after the last tidying
	density  density
	sparse   sparse
}

func newFeed(n *Node) *feed {
	f := &feed{node: n, kick: make(chan struct{}, 1), patience: minPatience, size: firstSize, density: firstDensity}
	f.forget()
	return f
}

// forget drops all that is known of the log. A page under way brings nothing any more.
func (f *feed) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dir = newDirectory(f.node.cfg.DirectorySize)
	f.groups = newGroups[*bucket](nearPlaces)
	f.parked = map[*bucket]kiroku.Position{}
	f.anchors = anchors{}
}

// run reads until ctx ends.
func (f *feed) run(ctx context.Context) {
	defer f.headroom.release() // whoever has a closed Node has no use for it
	backoff := readBackoff
	f.practise(ctx)
	for ctx.Err() == nil {
		worked, err := f.turn(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			f.node.failed(err)
			f.node.pool.Reset() // through a pooler another server may answer by now
			if errors.Is(err, context.DeadlineExceeded) {
				f.patience = min(2*f.patience, maxPatience)
			}
			wait(ctx, backoff, nil)
			backoff = min(2*backoff, readBackoffX)
		case !worked:
			if !wait(ctx, f.node.cfg.PollInterval, f.kick) {
				f.wake() // the poll: what a lost notification told
			}
			backoff = readBackoff
		default:
			backoff, f.patience = readBackoff, minPatience
		}
	}
}

// wait returns true when kicked, false after d or the end of ctx.
func wait(ctx context.Context, d time.Duration, kick <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-kick:
		return true
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}

// wake says that something may have been appended. It never blocks.
func (f *feed) wake() {
	f.mu.Lock()
	f.groups.wake()
	f.mu.Unlock()
	f.nudge()
}

// nudge has the feed look again, at room or at new buckets. It never blocks.
func (f *feed) nudge() { signal(f.kick) }

// signal kicks whoever waits on a channel that holds one. It never blocks: a kick
// that waits already will see this, too (P-32).
func signal(kick chan<- struct{}) {
	select {
	case kick <- struct{}{}:
	default:
	}
}

// add brings buckets in at their checkpoints. They wait, and are known again by
// what stands there, until OnAssigned has returned.
func (f *feed) add(at map[*bucket]kiroku.Position, stands anchors) {
	f.mu.Lock()
	for b, p := range at {
		if !b.isStopped() {
			f.parked[b] = p
			f.anchors[p] = stands[p]
		}
	}
	f.mu.Unlock()
	f.nudge()
}

// remove takes a bucket out; pages under way bring it nothing any more.
func (f *feed) remove(b *bucket) {
	f.mu.Lock()
	f.groups.remove(b)
	delete(f.parked, b)
	f.mu.Unlock()
}

// turn reads one page, if there is one to read.
func (f *feed) turn(ctx context.Context) (worked bool, err error) {
	r, ok := f.ask()
	if !ok {
		return false, nil
	}
	p, err := f.readPage(ctx, r)
	if err != nil {
		f.mu.Lock()
		f.groups.failed(r.ask)
		f.mu.Unlock()
		return false, &ReadError{After: r.ask.After, Err: err}
	}
	f.node.last.good()
	f.apply(r, p)
	if p.more && r.ask.Until == 0 && !f.node.cfg.DisableHeadroom {
		f.headroom.hold()
	}
	return true, nil
}

// reading is a page to be read, with what is known of its log.
type reading struct {
	ask        ask[*bucket]
	span       span
	routes     []route
	categories []string // the only ones whose keys are read; empty for all keys
	limit      int      // keys at most
	events     int      // events at most
	dir        *directory
	at         uuid.UUID // what stands at the cursor, if that is known
}

// ask picks the next page. Parked buckets that have room again come first.
func (f *feed) ask() (r reading, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	back := map[*bucket]kiroku.Position{}
	for b, read := range f.parked {
		if b.room().free > 0 {
			back[b] = read
			delete(f.parked, b)
		}
	}
	f.groups.add(back)
	a, ok := f.groups.next((*bucket).room)
	if !ok {
		return reading{}, false
	}
	maps.Copy(f.parked, a.Parked)
	r = reading{ask: a, span: spanOf(a), routes: routesOf(a), dir: f.dir, at: f.anchors[a.After]}
	r.events = f.eventsIn(r.span.bytes)
	r.limit = f.density.limit(r.span, r.events)
	if r.categories = f.sparse.way(f.density, r.routes); len(r.categories) > 0 {
		r.limit = density(1).limit(r.span, r.events)
	} else if a.First {
		r.limit = min(r.limit, firstLimit(a))
	}
	return r, true
}

// apply queues a page and moves the group, in one step: whoever leaves
// meanwhile gets nothing of it (P-28).
func (f *feed) apply(r reading, p page) {
	a := r.ask
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.groups.holds(a.group) {
		return
	}
	for _, it := range p.items {
		read, present := a.Sinks[it.bucket]
		if !present || it.entry.event.Position <= read {
			it.entry.clear()
			continue
		}
		it.entry.below = max(it.entry.below, read)
		if !it.bucket.offer(it.entry) {
			it.entry.clear()
			f.park(it.bucket, it.entry.below, p)
		}
	}
	for b := range a.Sinks {
		b.advance(p.end)
	}
	f.groups.applied(a, p.end, p.more)
	f.anchor(p.end, p)
	f.density = f.density.learned(r, p)
	f.sparse.learned(r, p)
}

// park takes a bucket that is full out of the page: it has read up to read.
func (f *feed) park(b *bucket, read kiroku.Position, p page) {
	b.advance(read)
	f.groups.remove(b)
	if !b.isStopped() {
		f.parked[b] = read
		f.anchor(read, p)
	}
}

// anchor remembers which event stands at a place of the page. Now and then it
// lets go of places that nobody is at any more.
func (f *feed) anchor(at kiroku.Position, p page) {
	if event, ok := p.eventAt(at); ok {
		f.anchors[at] = event
	}
	if len(f.anchors) >= 2*f.anchored+64 {
		f.anchors = f.reachedLocked()
		f.anchored = len(f.anchors)
	}
}

// reached is what the log is known again by.
func (f *feed) reached() anchors {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reachedLocked()
}

func (f *feed) reachedLocked() anchors {
	reached := anchors{}
	for _, b := range f.node.buckets() {
		if at, ok := b.reached(); ok {
			reached[at] = f.anchors[at]
		}
	}
	return reached
}

// forgetAnchor: nothing stands there any more.
func (f *feed) forgetAnchor(at kiroku.Position) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.anchors, at)
}
