package lease

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Relinquish takes every bucket of the subscription from a worker, for an
// operator (T-21), and returns them, ascending. With dryRun it only says which
// it would take. A live worker learns of it at its next beat: it does not drain,
// it stops, and it may be dealt buckets again; nothing is lost, but what its
// handlers were doing is repeated elsewhere.
//
// Errors: [*SchemaError], [*PrivilegeError], or the database's.
func Relinquish(ctx context.Context, db DB, subscription string, worker uuid.UUID, dryRun bool) ([]int, error) {
	sql := relinquishSQL
	if dryRun {
		sql = relinquishPreviewSQL
	}
	rows, err := db.Query(ctx, sql, pgx.NamedArgs{"subscription": subscription, "worker": worker})
	if err != nil {
		return nil, fmt.Errorf("lease: relinquish %q: %w", subscription, typed(err))
	}
	buckets, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return nil, fmt.Errorf("lease: relinquish %q: %w", subscription, typed(err))
	}
	return buckets, nil
}
