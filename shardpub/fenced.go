package shardpub

import (
	"context"

	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/lease"
)

// fence ends the tenures of buckets whose write came back empty: the lease row
// names another. Each is noted once in the log of owners, by the write that ended
// it.
func (n *Node) fence(ctx context.Context, db kiroku.DB, buckets ...*bucket) {
	rows := newBucketRows()
	for _, b := range buckets {
		if b.tenure.Context().Err() == nil {
			rows.add(b, progress{})
		}
		b.tenure.End(lease.ErrLost)
		b.sub.wake()
	}
	if len(rows.buckets) == 0 {
		return
	}
	if _, err := db.Exec(ctx, fencedSQL, rows.subscriptions, rows.buckets, rows.workers, rows.shards); err != nil {
		n.failed(&BucketError{Subscription: rows.subscriptions[0], Bucket: int(rows.buckets[0]), Doing: "log the loss", Err: err})
	}
}
