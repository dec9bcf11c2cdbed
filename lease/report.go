package lease

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
)

// EventKind says what happened.
type EventKind string

// What happens to a worker and its buckets.
const (
	// Joined: the worker's presence is written.
	Joined EventKind = "joined"
	// Claimed: a bucket is owned. The reason says how it was found: "join" (it was
	// nobody's), "expired", "gone" (its owner is marked), or "resumed" (its own already).
	Claimed EventKind = "claimed"
	// Draining: a bucket is on its way out.
	Draining EventKind = "draining"
	// Released: a bucket was given back.
	Released EventKind = "released"
	// Unreleased: a bucket was not given back in time, and is not renewed.
	Unreleased EventKind = "unreleased"
	// Dropped: a bucket was lost.
	Dropped EventKind = "lost"
	// Left: the worker is off the list.
	Left EventKind = "left"
)

// Event is one thing that happened, for logs and displays.
type Event struct {
	Kind         EventKind
	Subscription string
	Worker       uuid.UUID
	// Bucket is -1 for what concerns the worker.
	Bucket int
	Reason string
	Err    error
}

const (
	maxReports = 4096
	flushTime  = time.Second
)

// reporter calls the user's functions, one after another, from a goroutine that
// lives only while there is something to say: what they do cannot stall a pass.
// When they fall far behind, what is newest is left out.
type reporter struct {
	onError func(context.Context, error)
	observe func(Event)

	mu    sync.Mutex // guards queue and idle
	queue []call
	idle  chan struct{} // closed when the queue is empty; nil before the first report
}

// call is one call of a function of the user.
type call struct {
	ctx   context.Context //nolint:containedctx // of the call to come
	hook  string
	error error
	event Event
}

func (r *reporter) error(ctx context.Context, err error) {
	if r.onError != nil {
		r.push(call{ctx: context.WithoutCancel(ctx), hook: "OnError", error: err})
	}
}

func (r *reporter) event(ctx context.Context, e Event) {
	if r.observe != nil {
		r.push(call{ctx: context.WithoutCancel(ctx), hook: "Observe", event: e})
	}
}

func (r *reporter) push(c call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) >= maxReports {
		return
	}
	r.queue = append(r.queue, c)
	if len(r.queue) == 1 {
		r.idle = make(chan struct{})
		go r.drain(r.idle)
	}
}

// drain makes the calls that are queued. The one that runs stays in the queue, so
// that push knows that somebody is at work.
func (r *reporter) drain(idle chan struct{}) {
	defer close(idle)
	for {
		r.mu.Lock()
		c := r.queue[0]
		r.mu.Unlock()
		r.run(c)
		r.mu.Lock()
		r.queue = r.queue[1:]
		empty := len(r.queue) == 0
		r.mu.Unlock()
		if empty {
			return
		}
	}
}

// run survives a panic of the hook. OnError hears of a panic of Observe; of its
// own nobody is left to tell.
func (r *reporter) run(c call) {
	defer func() {
		if v := recover(); v != nil && c.error == nil {
			r.error(c.ctx, &HookError{Hook: c.hook, Value: v})
		}
	}()
	if c.error != nil {
		r.onError(c.ctx, c.error)
		return
	}
	r.observe(c.event)
}

// flush waits until what was reported has been said, but not for ever.
func (r *reporter) flush() {
	r.mu.Lock()
	idle := r.idle
	r.mu.Unlock()
	if idle == nil {
		return
	}
	select {
	case <-idle:
	case <-time.After(flushTime):
	}
}
