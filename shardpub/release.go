package shardpub

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/internal/clock"
	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/lease"
)

// Times of a release.
const (
	releaseTime = 5 * time.Second // how long one bucket is tried
	releaseTry  = 3 * time.Second // once
	// A row that is locked is mostly so by a beat of this very worker.
	lockedBackoff = 10 * time.Millisecond
	lockedReport  = time.Second
)

// releaser gives buckets back: those that go at the same time in one statement.
type releaser struct {
	node  *Node
	kick  chan struct{}
	ended chan struct{} // closed when run has returned

	mu      sync.Mutex // guards waiting
	waiting []*giving
}

// giving is a bucket on its way out.
type giving struct {
	bucket     *bucket
	reason     string
	since      time.Time // of the first try
	failure    error     // of the last try
	unanswered bool      // a try ended without an answer: it may have been done
	done       chan error
}

// errLocked: somebody has locked the lease or the checkpoint of a bucket.
var errLocked = errors.New("its lease or its checkpoint is locked by another transaction")

func newReleaser(n *Node) *releaser {
	return &releaser{node: n, kick: make(chan struct{}, 1), ended: make(chan struct{})}
}

// release gives a bucket back with its final checkpoint, as long as its lease is
// trusted (P-19) and not for ever: a lease that was not released runs out.
func (r *releaser) release(b *bucket, why lease.Reason) error {
	r.node.flusher.forget(b)
	g := &giving{bucket: b, reason: logged(why), done: make(chan error, 1)}
	r.enqueue(g)
	select {
	case err := <-g.done:
		return err
	case <-r.ended:
		return lease.ErrLost
	}
}

// logged is what suisha.ownership_log says of a release.
func logged(why lease.Reason) string {
	if why == lease.Rebalanced {
		return "shed"
	}
	return string(why)
}

func (r *releaser) enqueue(all ...*giving) {
	r.mu.Lock()
	r.waiting = append(r.waiting, all...)
	r.mu.Unlock()
	signal(r.kick)
}

func (r *releaser) take() []*giving {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.waiting
	r.waiting = nil
	return all
}

// run releases until ctx ends.
func (r *releaser) run(ctx context.Context) {
	defer close(r.ended)
	backoff := lockedBackoff
	for {
		select {
		case <-r.kick:
		case <-ctx.Done():
			return
		}
		again := r.try(ctx, r.take())
		if len(again) == 0 {
			backoff = lockedBackoff
			continue
		}
		wait(ctx, backoff, r.kick)
		backoff = min(2*backoff, time.Second)
		r.enqueue(again...)
	}
}

// try releases what it can, and returns what is to be tried again.
func (r *releaser) try(ctx context.Context, all []*giving) (again []*giving) {
	now := clock.Now()
	var due []*giving
	for _, g := range all {
		switch {
		case !g.bucket.trusted():
			g.done <- lease.ErrLost
		case !g.since.IsZero() && clock.Elapsed(g.since, now) >= releaseTime:
			g.done <- g.failure
		default:
			due = append(due, g)
		}
	}
	if len(due) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, releaseTry)
	defer cancel()
	err := r.node.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) (err error) {
		again, err = r.write(ctx, conn, due)
		return err
	})
	if err != nil {
		return r.failed(due, err)
	}
	r.node.last.good()
	return again
}

// failed keeps what could not be tried. That is said once, not for every bucket.
func (r *releaser) failed(due []*giving, err error) []*giving {
	for _, g := range due {
		g.tried(err)
		g.unanswered = true
	}
	r.node.failed(due[0].failure)
	return due
}

func (g *giving) tried(err error) {
	if g.since.IsZero() {
		g.since = clock.Now()
	}
	g.failure = &BucketError{Subscription: g.bucket.sub.name, Bucket: g.bucket.number, Doing: "release", Err: err}
}

// write runs the statement, for the buckets whose lease is trusted now that the
// log is known (P-31), and answers.
func (r *releaser) write(ctx context.Context, db kiroku.DB, due []*giving) (again []*giving, err error) {
	rows := newBucketRows()
	for _, g := range due {
		if g.bucket.trusted() {
			rows.add(g.bucket, g.bucket.progress(nil))
			rows.reasons = append(rows.reasons, g.reason)
		}
	}
	released, mine, err := rows.release(ctx, db)
	if err != nil {
		return nil, err
	}
	var lost []*bucket
	for _, g := range due { // a try whose answer was lost may have released it
		if gone, asked := released[g.bucket]; asked && !gone && !mine[g.bucket] && !g.unanswered {
			lost = append(lost, g.bucket)
		}
	}
	r.node.fence(ctx, db, lost...)
	for _, g := range due {
		switch b := g.bucket; {
		case released[b], g.unanswered && !mine[b] && b.trusted():
			g.done <- nil // now, or by the try whose answer was lost
		case mine[b]:
			g.tried(errLocked)
			again = append(again, g)
		default:
			g.done <- lease.ErrLost
		}
	}
	if len(again) > 0 && clock.Elapsed(again[0].since, clock.Now()) > lockedReport {
		r.node.report(again[0].failure)
	}
	return again, nil
}
