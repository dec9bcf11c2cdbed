package shardpub

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/kiroku"
)

type bucketKey struct {
	subscription string
	bucket       int
	worker       uuid.UUID
}

// bucketRows are the parameters of checkpoint.sql and release.sql.
type bucketRows struct {
	subscriptions []string
	buckets       []int32
	workers       []string // text: every exec mode can send it
	shards        []int32
	positions     []int64
	settled       [][]byte
	reasons       []string // of a release
	byKey         map[bucketKey]written
}

// written is what a row writes, and for whom.
type written struct {
	b *bucket
	p progress
}

func newBucketRows() *bucketRows { return &bucketRows{byKey: map[bucketKey]written{}} }

// unsavedOf collects what may be written now, and takes the pens of its buckets.
// busy is called for those that another statement writes for.
func unsavedOf(buckets []*bucket, busy func(*bucket)) *bucketRows {
	rows := newBucketRows()
	for _, b := range buckets {
		switch {
		case !b.due():
		case b.grasp():
			rows.add(b, b.progress(nil))
		default:
			busy(b)
		}
	}
	return rows
}

// done gives the pens back.
func (r *bucketRows) done() {
	for _, w := range r.byKey {
		<-w.b.pen
	}
}

func (r *bucketRows) add(b *bucket, p progress) {
	r.subscriptions = append(r.subscriptions, b.sub.name)
	r.buckets = append(r.buckets, int32(b.number)) //nolint:gosec // at most maxShards
	r.workers = append(r.workers, b.sub.worker.String())
	r.shards = append(r.shards, int32(b.sub.cfg.Shards)) //nolint:gosec // at most maxShards
	r.positions = append(r.positions, int64(p.mark))
	r.settled = append(r.settled, p.settled)
	r.byKey[bucketKey{b.sub.name, b.number, b.sub.worker}] = written{b, p}
}

func (r *bucketRows) args() []any {
	return []any{r.subscriptions, r.buckets, r.workers, r.shards, r.positions, r.settled}
}

// save writes the rows and returns the buckets that were lost. skipped is called for
// buckets with a locked row: their checkpoint waits for the next flush.
func (r *bucketRows) save(ctx context.Context, db kiroku.DB, skipped func(*bucket)) (lost []*bucket, err error) {
	rows, err := db.Query(ctx, checkpointSQL, r.args()...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var k bucketKey
		var saved, mine bool
		if err := rows.Scan(&k.subscription, &k.bucket, &k.worker, nil, &saved, &mine); err != nil {
			return nil, err
		}
		w := r.byKey[k]
		switch {
		case saved:
			w.b.saved(w.p)
		case mine:
			skipped(w.b)
		default:
			lost = append(lost, w.b)
		}
	}
	return lost, rows.Err()
}

// release gives the buckets back, and tells which it did and which are still
// their workers'.
func (r *bucketRows) release(ctx context.Context, db kiroku.DB) (released, mine map[*bucket]bool, err error) {
	released, mine = map[*bucket]bool{}, map[*bucket]bool{}
	if len(r.buckets) == 0 {
		return released, mine, nil
	}
	rows, err := db.Query(ctx, releaseSQL, append(r.args(), r.reasons)...)
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var k bucketKey
		var gone, held bool
		if err := rows.Scan(&k.subscription, &k.bucket, &k.worker, &gone, &held, nil); err != nil {
			return nil, nil, err
		}
		b := r.byKey[k].b
		released[b], mine[b] = gone, held
	}
	return released, mine, rows.Err()
}

// writeDeadLetter records that an event was given up, together with the
// checkpoint and the settled set as they are once the event is settled (P-37).
// written is false when the fence did not hold: nothing was written. An event that
// was hard-deleted meanwhile counts as written.
func (n *Node) writeDeadLetter(b *bucket, e *entry, reason kiroku.Reason, deliveries int) (written bool, err error) {
	text, err := json.Marshal(reason) // fit for PostgreSQL, like the summary
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.base), min(writeTimeout, b.tenure.Left()))
	defer cancel()
	if !seize(ctx, n.letters) { // one at a time: one that waits for a lock leaves a connection to the others
		return false, ctx.Err()
	}
	defer func() { <-n.letters }()
	if !seize(ctx, b.pen) {
		return false, ctx.Err()
	}
	defer func() { <-b.pen }()
	p := b.progress(e)
	err = n.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		if !b.trusted() {
			return nil // not any more, now that the log is known (P-31)
		}
		err := conn.QueryRow(ctx, deadLetterSQL,
			b.sub.name, b.number, b.sub.worker, b.sub.cfg.Shards,
			int64(e.event.Position), e.event.ID, string(text), reason.Summary(), deliveries, int64(p.mark), p.settled,
		).Scan(&written)
		if err == nil && !written {
			n.fence(ctx, conn, b)
		}
		return err
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
		b.saved(p)
	}
	return written, nil
}

// seize waits for the place in a channel that holds one; false when ctx ends before.
func seize(ctx context.Context, c chan<- struct{}) bool {
	select {
	case c <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}
