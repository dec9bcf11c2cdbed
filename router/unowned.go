package router

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/suisha-go/suisha/internal/clock"
	"github.com/suisha-go/suisha/shardpub"
)

// unowned finds the buckets that no live worker has had for two intervals, this
// one having run for as long. It asks on the caller's pool, in a second at most.
func (w *Worker) unowned(ctx context.Context, statuses []shardpub.SubscriptionStatus, now time.Time) ([]Problem, error) {
	grace := 2 * w.cfg.Node.Lease.WithDefaults().RenewInterval
	if clock.Elapsed(w.startedAt, now) < grace {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, ownersTimeout)
	defer cancel()
	var out []Problem
	for _, s := range statuses {
		buckets, err := w.unownedOf(ctx, s.Subscription, s.Shards, grace)
		if err != nil {
			return out, fmt.Errorf("router: owners of %q: %w", s.Subscription, err)
		}
		for _, b := range buckets {
			since := now.Add(-time.Duration(b.Age) * time.Microsecond)
			out = append(out, Problem{Kind: Unowned, Subscription: s.Subscription, Bucket: b.Bucket, Since: since})
		}
	}
	return out, nil
}

// ownersTimeout is how long Health waits for a connection and the answer.
const ownersTimeout = time.Second

type unownedBucket struct {
	Bucket int
	Age    int64
}

func (w *Worker) unownedOf(ctx context.Context, subscription string, shards int, grace time.Duration) ([]unownedBucket, error) {
	rows, err := w.pool.Query(ctx, unownedSQL, pgx.NamedArgs{
		"subscription": subscription, "shards": shards, "grace": grace.Microseconds(),
	})
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[unownedBucket])
}
