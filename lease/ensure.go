package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// Ensure makes the subscription exist: it records what the name means and
// inserts the missing shard rows, free (P-1, P-3). It is idempotent and never
// changes or deletes a row.
//
// The transaction must be READ COMMITTED. Ensure takes an advisory lock in it,
// so that concurrent calls for one name wait for each other, until it ends; what
// else belongs to the beginning (the checkpoints) is seeded by the caller before
// it commits.
//
// When the name exists with another number of shards, target or filter, it
// returns [*ShardCountError] or [*TargetError], or both joined, and has written
// nothing. Other errors: [*ConfigError], [*SchemaError], [*PrivilegeError], or
// the database's.
func Ensure(ctx context.Context, tx pgx.Tx, s Subscription) error {
	if err := s.Validate(); err != nil {
		return err
	}
	args := pgx.NamedArgs{"subscription": s.Name, "target": s.Target, "shards": s.Shards, "filter": s.Filter}
	if _, err := tx.Exec(ctx, ensureLockSQL, args); err != nil {
		return fmt.Errorf("lease: ensure %q: %w", s.Name, typed(err))
	}
	// A statement of its own: only one begun after the lock was got sees what
	// its last owner committed.
	if err := compare(ctx, tx, s, args); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, ensureInsertSQL, args); err != nil {
		return fmt.Errorf("lease: ensure %q: %w", s.Name, typed(err))
	}
	return nil
}

// compare returns what the database says that contradicts s.
func compare(ctx context.Context, tx pgx.Tx, s Subscription, args pgx.NamedArgs) error {
	var (
		target, filter *string
		shards         *int
		counts         []int
	)
	if err := tx.QueryRow(ctx, ensureReadSQL, args).Scan(&target, &filter, &shards, &counts); err != nil {
		return fmt.Errorf("lease: ensure %q: %w", s.Name, typed(err))
	}
	if shards != nil {
		counts = append(counts, *shards)
	}
	counts = slices.DeleteFunc(counts, func(n int) bool { return n == s.Shards })
	slices.Sort(counts)
	counts = slices.Compact(counts)
	var errs []error
	if len(counts) > 0 {
		errs = append(errs, &ShardCountError{Subscription: s.Name, Configured: s.Shards, Found: counts})
	}
	if target != nil && *target != s.Target {
		errs = append(errs, &TargetError{Subscription: s.Name, Field: "target", Configured: s.Target, Found: *target})
	}
	if filter != nil && *filter != s.Filter {
		errs = append(errs, &TargetError{Subscription: s.Name, Field: "filter", Configured: s.Filter, Found: *filter})
	}
	return errors.Join(errs...)
}
