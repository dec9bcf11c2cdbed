package shardpub

import (
	"container/heap"

	"github.com/suisha-go/suisha/kiroku"
)

// lanes decides which event of a bucket may go out, and what its checkpoint
// is. Events of one stream form a lane: at most one of a lane is out at a time
// and at most width lanes are, oldest event first. It is a plain value machine:
// no clock, no goroutine, no database. The rules are P-28, P-30, P-33, P-39.
type lanes struct {
	width int
	read  kiroku.Position // every key of the bucket up to here was queued or does not exist
	order []*entry        // unsettled events by position; settled ones leave from the front
	byID  map[int64]*lane // by stream
	spare []*lane         // to be used again
	ready readyLanes
	out   int
	bytes int
	count int // unsettled

	inherited acks   // settled by an earlier owner, above all that was read
	most      int    // how many may be settled above the mark before no other goes out
	settles   uint64 // changes with every event that is settled
}

// maxAhead bounds how much is settled above a checkpoint, where PrefetchCount does
// not do it before: some 8 KiB of suisha.acks per bucket.
const maxAhead = 4096

// entry is one event of the bucket on its way.
type entry struct {
	event   kiroku.RecordedEvent
	stream  string
	below   kiroku.Position // the last key read before it: the checkpoint while it is unsettled
	size    int
	settled bool

	next   *entry // of its stream
	flight flight // while it is out
}

// clear lets go of what is large: entries share memory, so one that is not needed may
// stay for as long as another.
func (e *entry) clear() { e.event.Data, e.event.Metadata = nil, nil }

// lane is the unsettled events of one stream, by position.
type lane struct {
	first, last *entry
	out         bool
}

// newLanes begins behind a checkpoint. settled is what an earlier owner settled
// above it.
func newLanes(width int, read kiroku.Position, settled acks) *lanes {
	return &lanes{width: width, read: read, byID: map[int64]*lane{}, inherited: settled, most: maxAhead}
}

// push queues an event read after everything that was queued so far. below is
// the last key read before it. False: it is settled already (P-39).
func (l *lanes) push(e *entry) bool {
	if l.inherited.take(e.event.Position) {
		l.skip(e)
		return false
	}
	if ln := l.byID[e.event.StreamID]; ln != nil {
		ln.last.next, ln.last = e, e
	} else {
		l.open(e)
	}
	l.order = append(l.order, e)
	l.read = e.event.Position
	l.bytes += e.size
	l.count++
	return true
}

// open begins a lane.
func (l *lanes) open(e *entry) {
	var ln *lane
	if n := len(l.spare); n > 0 {
		ln, l.spare = l.spare[n-1], l.spare[:n-1]
	} else {
		ln = &lane{}
	}
	ln.first, ln.last = e, e
	l.byID[e.event.StreamID] = ln
	heap.Push(&l.ready, ln)
}

// close ends a lane that is empty.
func (l *lanes) close(stream int64, ln *lane) {
	ln.last = nil
	delete(l.byID, stream)
	l.spare = append(l.spare, ln)
}

// skip passes an event over that is settled.
func (l *lanes) skip(e *entry) {
	e.settled = true
	e.clear()
	if len(l.order) > 0 {
		l.order = append(l.order, e)
	}
	l.read = e.event.Position
}

// advance records that every key up to read was queued or does not exist.
func (l *lanes) advance(read kiroku.Position) {
	l.read = max(l.read, read)
	l.inherited.take(l.read)
}

// ahead is how many events are settled above the mark.
func (l *lanes) ahead() int { return len(l.order) - l.count + len(l.inherited.at) }

// eligible is how many lanes have an event that may go out. Too far above the mark
// that is only the oldest of all, which holds the mark back.
func (l *lanes) eligible() int {
	if len(l.ready) > 0 && l.ahead() >= l.most {
		if l.ready[0].first == l.order[0] {
			return 1
		}
		return 0
	}
	return len(l.ready)
}

// next takes the oldest event that may go out; its lane stays busy until settle.
func (l *lanes) next() (*entry, bool) {
	if l.out >= l.width || l.eligible() == 0 {
		return nil, false
	}
	ln := heap.Pop(&l.ready).(*lane) //nolint:errcheck,forcetypeassert // the heap holds lanes only
	ln.out = true
	l.out++
	return ln.first, true
}

// waitingFor reports whether more than n callers of next would find an event.
func (l *lanes) waitingFor(n int) bool { return l.out+l.eligible() > n }

// following are up to n of the events behind one that is out, in its stream; not so many
// that too much would be settled above the mark.
func (l *lanes) following(e *entry, n int) []*entry {
	n = min(n, l.most-l.ahead())
	var all []*entry
	for f := e.next; f != nil && len(all) < n; f = f.next {
		all = append(all, f)
	}
	return all
}

// settle ends an event that is out, and so many of those behind it in its stream:
// nothing is to be done for them any more.
func (l *lanes) settle(e *entry, along int) {
	ln := l.byID[e.event.StreamID]
	ln.out = false
	l.out--
	for range 1 + along {
		l.endFirst(ln)
	}
	if ln.first == nil {
		l.close(e.event.StreamID, ln)
	} else {
		heap.Push(&l.ready, ln)
	}
	for len(l.order) > 0 && l.order[0].settled {
		l.order[0] = nil
		l.order = l.order[1:]
	}
}

func (l *lanes) endFirst(ln *lane) {
	e := ln.first
	ln.first, e.next = e.next, nil
	e.settled = true
	e.clear() // it may stay for long, behind one that is not settled
	l.bytes -= e.size
	l.count--
	l.settles++
}

// clear lets go of what is large, when nothing goes out any more.
func (l *lanes) clear() {
	if l == nil {
		return
	}
	for _, e := range l.order {
		e.clear()
	}
}

// window is how many events were read beyond the checkpoint, settled ones
// included.
func (l *lanes) window() int { return len(l.order) }

// idle reports whether nothing waits to go out.
func (l *lanes) idle() bool { return l.count == l.out }

// mark is the checkpoint: just below the lowest unsettled event, else all that
// was read.
func (l *lanes) mark() kiroku.Position {
	if len(l.order) > 0 {
		return l.order[0].below
	}
	return l.read
}

// markWithout is the mark as it will be once e, which is out, is settled: what
// a dead letter writes beside itself (P-37).
func (l *lanes) markWithout(e *entry) kiroku.Position {
	for _, o := range l.order {
		if o != e && !o.settled {
			return o.below
		}
	}
	return l.read
}

// readyLanes is a heap of lanes by the position of their first event.
type readyLanes []*lane

func (r readyLanes) Len() int { return len(r) }
func (r readyLanes) Less(i, j int) bool {
	return r[i].first.event.Position < r[j].first.event.Position
}
func (r readyLanes) Swap(i, j int) { r[i], r[j] = r[j], r[i] }

// Push implements heap.Interface.
func (r *readyLanes) Push(x any) { *r = append(*r, x.(*lane)) } //nolint:errcheck,forcetypeassert // lanes only

// Pop implements heap.Interface.
func (r *readyLanes) Pop() any {
	old := *r
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*r = old[:len(old)-1]
	return last
}
