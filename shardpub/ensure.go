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
			n.last.good()
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
		if err := checkGrants(ctx, tx); err != nil {
			return err
		}
		_, err := kiroku.SeedCheckpoints(ctx, tx, name, cfg.Shards, cfg.Start)
		return err
	})
}

// checkGrants finds at the start what the role will lack later: for its beats,
// its pages, or its first dead letter (P-4).
func checkGrants(ctx context.Context, tx pgx.Tx) error {
	err := kiroku.CheckGrants(ctx, tx, false)
	var missing *kiroku.GrantError
	if err != nil && !errors.As(err, &missing) {
		return err
	}
	problems := []error{err}
	rows, err := tx.Query(ctx, missingGrantsSQL)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var object, privilege string
		if err := rows.Scan(&object, &privilege); err != nil {
			return err
		}
		problems = append(problems, fmt.Errorf("no privilege %s on %s", privilege, object))
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if err := errors.Join(problems...); err != nil {
		return &GrantError{Err: err}
	}
	return nil
}
