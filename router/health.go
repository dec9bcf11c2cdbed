package router

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/suisha-go/suisha/internal/clock"
	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/shardpub"
)

// Health is how a Worker does.
type Health struct {
	// Healthy: the Worker runs and there are no Problems.
	Healthy bool
	// Subscriptions are those of this Worker, by name, with the buckets held here.
	// A Worker may hold none and be healthy.
	Subscriptions []shardpub.SubscriptionStatus
	// Problems are what keeps events from being handled, by subscription and
	// bucket.
	Problems []Problem
	// OwnersUnknown is why buckets that nobody owns could not be looked for, if
	// so: the caller's pool has no free connection, or the database does not
	// answer. It is no problem by itself: see HeartbeatLost.
	OwnersUnknown error
}

// ProblemKind tells the kinds of Problem apart.
type ProblemKind string

// The kinds of Problem.
const (
	// NotRunning: the Worker has not started, is stopping, or has ended with Err.
	NotRunning ProblemKind = "not running"
	// HandlerStuck: a handler has had one event for longer than Config.StuckAfter.
	HandlerStuck ProblemKind = "handler stuck"
	// HeartbeatLost: the database has not heard from this process for half a
	// lease. Its buckets go elsewhere when the leases expire.
	HeartbeatLost ProblemKind = "heartbeat lost"
	// SessionLost: the connection that listens and beats could not be had within
	// the last 10 s.
	SessionLost ProblemKind = "session lost"
	// CheckpointFailing: writing checkpoints failed within the last 10 s. What is
	// settled meanwhile is repeated if the process ends.
	CheckpointFailing ProblemKind = "checkpoint failing"
	// ReadFailing: reading the log failed within the last 10 s.
	ReadFailing ProblemKind = "read failing"
	// BucketFailing: a bucket cannot start, or its dead letter cannot be written.
	BucketFailing ProblemKind = "bucket failing"
	// BackingOff: a bucket gave up two events in a row and waits before it gives
	// up more.
	BackingOff ProblemKind = "backing off"
	// Unowned: no live worker has had the bucket for longer than a hand-over or a
	// failover takes.
	Unowned ProblemKind = "unowned"
)

// NoBucket is the Bucket of a Problem that is no single bucket's.
const NoBucket = -1

// Problem is one thing that keeps events from being handled.
type Problem struct {
	Kind ProblemKind
	// Subscription is empty when it is all of them.
	Subscription string
	// Bucket is NoBucket when it is all of them.
	Bucket int
	// Stream and Position are those of the event, if there is one.
	Stream   string
	Position kiroku.Position
	// Since is when it began, as far as known.
	Since time.Time
	// Err is the last error, if there was one.
	Err error
}

// String tells it in one line.
func (p Problem) String() string {
	var s strings.Builder
	s.WriteString(string(p.Kind))
	if p.Subscription != "" {
		fmt.Fprintf(&s, " subscription=%q", p.Subscription)
	}
	if p.Bucket != NoBucket {
		fmt.Fprintf(&s, " bucket=%d", p.Bucket)
	}
	if p.Stream != "" {
		fmt.Fprintf(&s, " stream=%q position=%d", p.Stream, p.Position)
	}
	if !p.Since.IsZero() {
		fmt.Fprintf(&s, " since=%s", p.Since.Format(time.RFC3339))
	}
	if p.Err != nil {
		fmt.Fprintf(&s, " err=%q", p.Err)
	}
	return s.String()
}

// Health tells what is wrong, from memory, except for buckets that nobody owns:
// those are asked for in the database, for at most 1 s or until ctx ends. It may
// be called at any time; it changes nothing, and a Worker goes on by itself when
// a problem is over.
func (w *Worker) Health(ctx context.Context) Health {
	now := clock.Now()
	h := Health{Subscriptions: w.statuses()}
	if p, ok := w.notRunning(); ok {
		h.Problems = []Problem{p}
		return h
	}
	h.Problems = w.troubles.problems(now)
	for _, s := range h.Subscriptions {
		h.Problems = append(h.Problems, w.cfg.judge(&s, w.startedAt, now)...)
	}
	unowned, err := w.unowned(ctx, h.Subscriptions, now)
	h.Problems = append(h.Problems, unowned...)
	h.OwnersUnknown = err
	slices.SortStableFunc(h.Problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Subscription, b.Subscription), cmp.Compare(a.Bucket, b.Bucket))
	})
	h.Healthy = len(h.Problems) == 0
	return h
}

func (w *Worker) statuses() []shardpub.SubscriptionStatus {
	var all []shardpub.SubscriptionStatus
	for _, s := range w.subscribers() {
		all = append(all, s.Status()...)
	}
	slices.SortFunc(all, func(a, b shardpub.SubscriptionStatus) int { return cmp.Compare(a.Subscription, b.Subscription) })
	return all
}

func (w *Worker) notRunning() (Problem, bool) {
	p := Problem{Kind: NotRunning, Bucket: NoBucket}
	if w.hasEnded() {
		p.Err = w.Err()
		return p, true
	}
	select {
	case <-w.started:
		return p, w.isOver()
	default:
		return p, true
	}
}

// judge finds the problems of one subscription.
func (c *Config) judge(s *shardpub.SubscriptionStatus, started, now time.Time) []Problem {
	var out []Problem
	beat := s.Lease.LastBeat
	if beat.IsZero() {
		beat = started
	}
	if clock.Elapsed(beat, now) > c.Node.Lease.WithDefaults().TTL/2 {
		out = append(out, Problem{Kind: HeartbeatLost, Subscription: s.Subscription, Bucket: NoBucket, Since: beat, Err: s.Lease.LastError})
	}
	for _, b := range s.Buckets {
		for _, p := range c.judgeBucket(&b, now) {
			p.Subscription, p.Bucket = s.Subscription, b.Bucket
			out = append(out, p)
		}
	}
	return out
}

func (c *Config) judgeBucket(b *shardpub.BucketStatus, now time.Time) []Problem {
	var out []Problem
	for _, f := range b.InFlight {
		if !f.Waiting && f.For > c.StuckAfter {
			out = append(out, Problem{Kind: HandlerStuck, Stream: f.Stream, Position: f.Position, Since: now.Add(-f.For), Err: b.LastError})
		}
	}
	var head Problem // of the event that the bucket is at
	if len(b.InFlight) > 0 {
		f := b.InFlight[0]
		head = Problem{Stream: f.Stream, Position: f.Position, Since: now.Add(-f.For)}
	}
	switch {
	case b.State == shardpub.BackingOff:
		head.Kind, head.Err = BackingOff, b.LastError
		out = append(out, head)
	case b.LastError != nil && (b.State == shardpub.Opening || b.State == shardpub.Working):
		head.Kind, head.Err = BucketFailing, b.LastError
		out = append(out, head)
	}
	return out
}
