package router

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/suisha-go/suisha/shardpub"
)

// unowned finds the buckets that no live worker has had for two intervals.
func (w *Worker) unowned(ctx context.Context, statuses []shardpub.SubscriptionStatus, now time.Time) ([]Problem, error) {
	ctx, cancel := context.WithTimeout(ctx, ownersTimeout)
	defer cancel()
	grace := 2 * w.cfg.Node.Lease.WithDefaults().RenewInterval
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
