package router

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/suisha-go/suisha/kiroku"
)

// How often WaitFor asks.
const (
	minPoll = 20 * time.Millisecond
	maxPoll = 250 * time.Millisecond
)

// WaitFor returns nil when every event of the subscription's category up to and
// including p is settled, handled or dead-lettered, by whatever worker owns its
// bucket: read your writes. p is a position from shardpub.PublisherConfig's
// OnPublished or kiroku's Append; one that is not in the log yet is waited for.
// It asks the database on the caller's pool, every 20 ms at first, then less
// often, every 250 ms; a checkpoint follows what it settles by CheckpointInterval, or by
// up to a second where 128 buckets and more are written at once.
//
// Errors: [*UnknownSubscriptionError]; ctx's cause when ctx ends first; what the
// database said.
func (w *Worker) WaitFor(ctx context.Context, subscription string, p kiroku.Position) error {
	place, err := w.find(subscription)
	if err != nil {
		return err
	}
	for poll := minPoll; ; poll = min(poll+poll/2, maxPoll) {
		pending, err := w.pending(ctx, place, p)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("router: wait for position %d of %q: %w", p, subscription, context.Cause(ctx))
		case err != nil:
			return fmt.Errorf("router: wait for position %d of %q: %w", p, subscription, err)
		case !pending:
			return nil
		}
		timer := time.NewTimer(poll)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// place is what WaitFor must know of a subscription.
type place struct {
	subscription, category string
	shards                 int
}

// find looks among the handlers, then among what else is subscribed now.
func (w *Worker) find(subscription string) (place, error) {
	var places []place
	w.mu.Lock()
	for _, h := range w.handlers {
		places = append(places, place{h.subscription, h.category, h.options.Shards})
	}
	w.mu.Unlock()
	for _, s := range w.statuses() {
		places = append(places, place{s.Subscription, s.Topic, s.Shards})
	}
	var known []string
	for _, p := range places {
		if p.subscription == subscription {
			return p, nil
		}
		known = append(known, p.subscription)
	}
	slices.Sort(known)
	return place{}, &UnknownSubscriptionError{Subscription: subscription, Known: slices.Compact(known)}
}

func (w *Worker) pending(ctx context.Context, at place, p kiroku.Position) (bool, error) {
	var pending bool
	err := w.pool.QueryRow(ctx, pendingSQL, pgx.NamedArgs{
		"subscription": at.subscription, "category": at.category, "shards": at.shards, "position": int64(p),
	}).Scan(&pending)
	return pending, err
}
