package shardpub

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/suisha-go/suisha/internal/clock"
	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/lease"
)

// ensure makes sure that the subscription exists and means what is configured,
// and that each bucket has a checkpoint, in one transaction (P-1, P-3). What is
// wrong for good is returned at once; a server that does not answer is tried
// until StartTimeout, ctx or quit (P-4).
func (n *Node) ensure(ctx context.Context, cfg *SubscriberConfig, topic string, quit <-chan struct{}) error {
	name := cfg.SubscriptionName(cfg.ConsumerGroup, topic)
	began := clock.Now()
	ctx, cancel := context.WithTimeout(ctx, cfg.StartTimeout)
	defer cancel()
	for backoff := readBackoff; ; backoff = min(2*backoff, time.Second) {
		err := n.tryEnsure(ctx, cfg, name, topic)
		if err == nil {
			n.succeeded()
			return nil
		}
		if !isUnreachable(err) {
			return fmt.Errorf("subscription %q on %q: %w", name, topic, explain(err))
		}
		if wait(ctx, backoff, quit) {
			return ErrSubscriberClosed
		}
		if ctx.Err() != nil {
			if errors.Is(ctx.Err(), context.Canceled) {
				return fmt.Errorf("subscription %q on %q: %w", name, topic, context.Cause(ctx))
			}
			return &ConnectError{Subscription: name, After: clock.Elapsed(began, clock.Now()), Err: err}
		}
	}
}

func (n *Node) tryEnsure(ctx context.Context, cfg *SubscriberConfig, name, topic string) error {
	return pgx.BeginTxFunc(ctx, n.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		spec := lease.Subscription{Name: name, Target: topic, Shards: cfg.Shards}
		if err := lease.Ensure(ctx, tx, spec); err != nil {
			return err
		}
		_, err := kiroku.SeedCheckpoints(ctx, tx, name, cfg.Shards, cfg.Start)
		return err
	})
}
