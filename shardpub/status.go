package shardpub

import (
	"cmp"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/suisha-go/suisha/internal/clock"
	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/lease"
)

// SubscriptionStatus is one membership of this process in a subscription.
type SubscriptionStatus struct {
	Subscription string
	Topic        string
	Worker       uuid.UUID
	Shards       int
	// Lease is what the keeper knows: who lives, what is held, when it last
	// heard from the database.
	Lease lease.Status
	// Buckets are those held here, by number.
	Buckets []BucketStatus
}

// BucketState tells what a bucket that is held here does.
type BucketState string

// The states of a bucket.
const (
	// Opening: its checkpoint is being loaded, or OnAssigned runs.
	Opening BucketState = "opening"
	// Idle: nothing waits.
	Idle BucketState = "idle"
	// Working: events are out or wait to be.
	Working BucketState = "working"
	// BackingOff: it gave up two events in a row and waits before it gives up more.
	BackingOff BucketState = "backing off"
	// Draining: it finishes what is out and goes.
	Draining BucketState = "draining"
)

// BucketStatus is one bucket held here.
type BucketStatus struct {
	Bucket int
	State  BucketState
	// Checkpoint is what its row is known to hold; Read how far the log was read
	// for it.
	Checkpoint, Read kiroku.Position
	// Queued is the number of events read and not settled.
	Queued int
	// InFlight are the events that are out, oldest first.
	InFlight []InFlight
	// LastError is the last failure of a statement for this bucket, nil once an
	// event was handled since.
	LastError error
}

// InFlight is an event that a handler has, or that waits for its next delivery.
type InFlight struct {
	Stream   string
	Position kiroku.Position
	Attempt  int
	// For is how long the handler has had it.
	For time.Duration
	// Waiting: the delay between two deliveries.
	Waiting bool
}

func (s *subscription) status() SubscriptionStatus {
	st := SubscriptionStatus{
		Subscription: s.name, Topic: s.topic, Worker: s.worker, Shards: s.cfg.Shards, Lease: s.keeper.Status(),
	}
	for _, b := range s.list() {
		st.Buckets = append(st.Buckets, b.status())
	}
	slices.SortFunc(st.Buckets, func(x, y BucketStatus) int { return cmp.Compare(x.Bucket, y.Bucket) })
	return st
}

func (b *bucket) status() BucketStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := clock.Now()
	st := BucketStatus{Bucket: b.number, State: b.stateLocked(now), Checkpoint: b.flushed, LastError: b.lastErr}
	if b.lanes == nil {
		return st
	}
	st.Read, st.Queued = b.lanes.read, b.lanes.count
	for _, e := range b.out {
		f := e.flight
		st.InFlight = append(st.InFlight, InFlight{
			Stream: e.stream, Position: e.event.Position, Attempt: f.attempt, For: clock.Elapsed(f.since, now), Waiting: f.waiting,
		})
	}
	slices.SortFunc(st.InFlight, func(x, y InFlight) int { return cmp.Compare(y.For, x.For) })
	return st
}

func (b *bucket) stateLocked(now time.Time) BucketState {
	switch {
	case b.stopped:
		return Draining
	case !b.told:
		return Opening
	case b.until.After(now):
		return BackingOff
	case b.lanes.count > 0:
		return Working
	default:
		return Idle
	}
}
