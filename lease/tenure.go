package lease

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/suisha-go/suisha/internal/clock"
)

// Tenure is one unbroken time of owning a bucket: from a claim until release
// or loss. Whatever is done for a bucket carries its tenure, and what arrives
// for an ended one is dropped (P-21). Its methods are safe for concurrent use.
type Tenure struct {
	// Bucket is the bucket owned.
	Bucket int
	// ID numbers the tenures of one Keeper, from 1.
	ID uint64

	trust  atomic.Pointer[Trust]
	ctx    context.Context //nolint:containedctx // the tenure is the context's owner
	cancel context.CancelCauseFunc
}

// NewTenure opens a tenure that ends with ctx. Keepers make them; tests may.
func NewTenure(ctx context.Context, bucket int, id uint64, trust Trust) *Tenure {
	t := &Tenure{Bucket: bucket, ID: id}
	t.ctx, t.cancel = context.WithCancelCause(ctx)
	t.trust.Store(&trust)
	return t
}

// Trusted reports whether the lease may still be believed. It is checked at
// every hand-out and every verdict (P-22): two clock reads, no lock.
func (t *Tenure) Trusted() bool { return t.TrustedAt(clock.Now()) }

// TrustedAt is Trusted for a caller that has just read the clock.
func (t *Tenure) TrustedAt(now time.Time) bool {
	return t.ctx.Err() == nil && t.trust.Load().Left(now) > 0
}

// Left is how long the lease may still be believed, at least zero.
func (t *Tenure) Left() time.Duration { return t.trust.Load().Left(clock.Now()) }

// RenewedSince reports whether the lease was claimed or renewed by a statement
// sent after t.
func (t *Tenure) RenewedSince(at time.Time) bool { return t.trust.Load().after(at) }

// Context ends when the tenure does; its cause says why: [ErrLost] when the
// lease was lost or can no longer be believed, [ErrReleased] after a release.
func (t *Tenure) Context() context.Context { return t.ctx }

// Extend believes the lease for longer: a renewal sent at that time succeeded.
func (t *Tenure) Extend(trust Trust) { t.trust.Store(&trust) }

// End ends the tenure. The first cause stays.
func (t *Tenure) End(cause error) { t.cancel(cause) }

// Reason says why a bucket goes.
type Reason string

// Why a bucket goes.
const (
	// Rebalanced: the plan deals it to another worker.
	Rebalanced Reason = "rebalanced"
	// Shutdown: this worker is leaving.
	Shutdown Reason = "shutdown"
	// Lost: it is another's already, or the lease can no longer be believed.
	Lost Reason = "lost"
)

// Holder works on the buckets that a Keeper owns. The Keeper calls Assign from
// its pass; it calls Drain and Lose each in a goroutine of its own, and keeps
// the bucket out of every claim until they return.
type Holder interface {
	// Assign hands over the tenures opened by one pass, after their claim
	// committed. It must not block.
	Assign(tenures []*Tenure)
	// Drain takes no new work for the bucket, lets what runs finish, writes
	// what is to be written, releases the lease row (owner and expiry null, where
	// the owner is the worker and shard_count is N) and notifies [Channel], in
	// that order. It returns nil when the row is released, and otherwise when
	// nothing of the tenure runs any more: then the bucket was not released, and
	// its lease runs out or a later pass frees it. unreleased must be called as
	// soon as the bucket can no longer be released in time: from then on it is
	// not renewed. When the lease is lost while it drains, the tenure's context
	// ends with [ErrLost] and Drain returns; Lose is not called.
	Drain(ctx context.Context, t *Tenure, r Reason, unreleased func(error)) error
	// Lose drops the bucket: its tenure has ended. It returns when nothing of
	// the tenure runs any more.
	Lose(t *Tenure)
}
