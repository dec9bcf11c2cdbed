package shardpub

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/suisha-go/suisha/kiroku"
)

// Sizes of a page. Keys are small, so a page has many; events are large, so
// they come in chunks that keep to the byte budget.
const (
	minPageKeys  = 100
	maxPageKeys  = 5000
	firstChunk   = 256
	maxChunk     = 1000
	minDensity   = 0.01
	readBackoff  = 100 * time.Millisecond
	readBackoffX = 2 * time.Second
)

// feed reads the log once for all buckets of a process. One goroutine runs it;
// buckets come and go from others.
type feed struct {
	node *Node
	dir  *directory // of the running goroutine

	mu      sync.Mutex // guards what follows; taken before a bucket's
	groups  *groups[*bucket]
	parked  map[*bucket]kiroku.Position
	anchors map[kiroku.Position]uuid.UUID // the event at each cursor, to know the log again
	server  string                        // who answered last (P-31)
	verify  bool                          // the connection is another: look before reading on
	density float64                       // share of the keys that were wanted lately
	kick    chan struct{}                 // holds one wake
}

func newFeed(n *Node) *feed {
	return &feed{
		node:    n,
		dir:     newDirectory(n.cfg.DirectorySize),
		groups:  newGroups[*bucket](maxPageKeys),
		parked:  map[*bucket]kiroku.Position{},
		anchors: map[kiroku.Position]uuid.UUID{},
		density: 1,
		kick:    make(chan struct{}, 1),
	}
}

// run reads until ctx ends.
func (f *feed) run(ctx context.Context) {
	backoff := readBackoff
	for ctx.Err() == nil {
		worked, err := f.turn(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			f.node.failed(err)
			f.suspect()
			wait(ctx, backoff, nil)
			backoff = min(2*backoff, readBackoffX)
		case !worked:
			if !wait(ctx, f.node.cfg.PollInterval, f.kick) {
				f.wake() // the poll: what a lost notification told
			}
			backoff = readBackoff
		default:
			backoff = readBackoff
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
func (f *feed) nudge() {
	select {
	case f.kick <- struct{}{}:
	default: // one is waiting; it will see this too (P-32)
	}
}

// suspect has the log checked before it is read on: the connection is new.
func (f *feed) suspect() {
	f.mu.Lock()
	f.verify = true
	f.mu.Unlock()
}

// add brings buckets in at their checkpoints.
func (f *feed) add(at map[*bucket]kiroku.Position) {
	f.mu.Lock()
	for b := range at {
		if b.isStopped() {
			delete(at, b)
		}
	}
	f.groups.add(at)
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
	if err := f.recognize(ctx); err != nil {
		return false, err
	}
	a, routes, limit, ok := f.ask()
	if !ok {
		return false, nil
	}
	p, err := f.readPage(ctx, a, routes, limit)
	if err != nil {
		f.mu.Lock()
		f.groups.failed(a)
		f.mu.Unlock()
		return false, &ReadError{After: a.After, Err: err}
	}
	f.node.succeeded()
	f.apply(a, p)
	return true, nil
}

// ask picks the next page. Parked buckets that have room again come first.
func (f *feed) ask() (a ask[*bucket], routes []route, limit int, ok bool) {
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
	a, ok = f.groups.next((*bucket).room)
	if !ok {
		return a, nil, 0, false
	}
	maps.Copy(f.parked, a.Parked)
	want := 0
	for b := range a.Sinks {
		want += b.sub.cfg.BatchSize
	}
	limit = int(float64(want) / max(f.density, minDensity))
	return a, routesOf(a), min(max(limit, minPageKeys), maxPageKeys), true
}

// apply queues a page and moves the group, in one step: whoever leaves
// meanwhile gets nothing of it (P-28).
func (f *feed) apply(a ask[*bucket], p page) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, it := range p.items {
		read, present := a.Sinks[it.bucket]
		if !present || it.entry.event.Position <= read {
			continue
		}
		it.entry.below = max(it.entry.below, read)
		if !it.bucket.offer(it.entry) {
			f.park(it.bucket, it.entry.below)
		}
	}
	for b := range a.Sinks {
		b.advance(p.end)
	}
	f.groups.applied(a, p.end, p.more)
	f.anchor(p)
	if p.keys > 0 {
		f.density = 0.7*f.density + 0.3*float64(len(p.items))/float64(p.keys)
	}
}

// park takes a bucket that is full out of the page: it has read up to read.
func (f *feed) park(b *bucket, read kiroku.Position) {
	b.advance(read)
	f.groups.park(b)
	if !b.isStopped() {
		f.parked[b] = read
	}
}

// anchor remembers which event stands at the cursor, and forgets the anchors of
// cursors that are no more.
func (f *feed) anchor(p page) {
	if p.last.Position == p.end {
		f.anchors[p.end] = p.last.EventID
	}
	for position := range f.anchors {
		if f.groups.at(position) == nil {
			delete(f.anchors, position)
		}
	}
}
