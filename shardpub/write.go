package shardpub

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/lease"
)

type bucketKey struct {
	subscription string
	bucket       int
	worker       uuid.UUID
}

// checkpointRows are the parameters of checkpoint.sql.
type checkpointRows struct {
	subscriptions []string
	buckets       []int32
	workers       []uuid.UUID
	shards        []int32
	positions     []int64
	byKey         map[bucketKey]*bucket
}

// unsavedOf collects what may be written now.
func unsavedOf(buckets []*bucket) *checkpointRows {
	rows := &checkpointRows{byKey: map[bucketKey]*bucket{}}
	for _, b := range buckets {
		if p, ok := b.unsaved(); ok && b.trusted() {
			rows.add(b, p)
		}
	}
	return rows
}

func (r *checkpointRows) add(b *bucket, p kiroku.Position) {
	r.subscriptions = append(r.subscriptions, b.sub.name)
	r.buckets = append(r.buckets, int32(b.number)) //nolint:gosec // at most maxShards
	r.workers = append(r.workers, b.sub.worker)
	r.shards = append(r.shards, int32(b.sub.cfg.Shards)) //nolint:gosec // at most maxShards
	r.positions = append(r.positions, int64(p))
	r.byKey[bucketKey{b.sub.name, b.number, b.sub.worker}] = b
}

// write runs the statement. skipped is called for buckets whose lease row was
// locked: their checkpoint waits for the next flush.
func (r *checkpointRows) write(ctx context.Context, db kiroku.DB, skipped func(*bucket)) error {
	if len(r.buckets) == 0 {
		return nil
	}
	rows, err := db.Query(ctx, checkpointSQL, r.subscriptions, r.buckets, r.workers, r.shards, r.positions)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var k bucketKey
		var position kiroku.Position
		var saved, mine bool
		if err := rows.Scan(&k.subscription, &k.bucket, &k.worker, &position, &saved, &mine); err != nil {
			return err
		}
		b := r.byKey[k]
		switch {
		case saved:
			b.saved(position)
		case mine:
			skipped(b)
		default:
			b.tenure.End(lease.ErrLost)
			b.sub.wake()
		}
	}
	return rows.Err()
}

// writeDeadLetter records that an event was given up, together with the
// checkpoint as it is once the event is settled (P-37). written is false when
// the fence did not hold: nothing was written. An event that was hard-deleted
// meanwhile counts as written.
func (n *Node) writeDeadLetter(b *bucket, e *entry, reason kiroku.Reason, deliveries int) (written bool, err error) {
	text, err := json.Marshal(reason) // fit for PostgreSQL, like the summary
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.base), min(writeTimeout, b.tenure.Left()))
	defer cancel()
	mark := b.markWithout(e)
	err = n.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		if !b.trusted() {
			return nil // not any more, now that the log is known (P-31)
		}
		return conn.QueryRow(ctx, deadLetterSQL,
			b.sub.name, b.number, b.sub.worker, b.sub.cfg.Shards,
			int64(e.event.Position), e.event.ID, string(text), reason.Summary(), deliveries, int64(mark),
		).Scan(&written)
	})
	if isEventGone(err) {
		return true, nil
	}
	if err != nil {
		n.last.bad()
		return false, err
	}
	n.last.good()
	if written {
		b.saved(mark)
	}
	return written, nil
}

// release gives a bucket back with its final checkpoint, as long as its lease is
// trusted (P-19) and not for ever: a lease that was not released runs out.
func (n *Node) release(b *bucket) error {
	n.flusher.forget(b)
	ctx, cancel := context.WithTimeout(b.sub.values, releaseTime)
	defer cancel()
	var failure error
	for backoff := flushBackoff; b.trusted() && ctx.Err() == nil; backoff *= 2 {
		released, err := n.tryRelease(ctx, b)
		switch {
		case released, err == nil && failure != nil && b.trusted():
			return nil // released now, or by the try whose answer was lost
		case err == nil, !b.trusted():
			return lease.ErrLost
		}
		failure = &BucketError{Subscription: b.sub.name, Bucket: b.number, Doing: "release", Err: err}
		n.failed(failure)
		wait(ctx, backoff, nil)
	}
	if failure == nil {
		return lease.ErrLost
	}
	return failure
}

func (n *Node) tryRelease(ctx context.Context, b *bucket) (released bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, min(releaseTry, b.tenure.Left()))
	defer cancel()
	var checkpoint *int64
	if p, ok := b.mark(); ok {
		v := int64(p)
		checkpoint = &v
	}
	err = n.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		if !b.trusted() {
			return lease.ErrLost // the log is known now (P-31)
		}
		var told int
		return conn.QueryRow(ctx, releaseSQL, b.sub.name, b.number, b.sub.worker, b.sub.cfg.Shards, checkpoint).Scan(&released, &told)
	})
	return released, err
}
