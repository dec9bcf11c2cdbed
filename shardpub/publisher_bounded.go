package shardpub

import (
	"context"
	_ "embed"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/internal/clock"
)

//go:embed sql/publish_bounds.sql
var publishBoundsSQL string

// deadlineSlack lets the client's deadline come first: its error is the one
// that callers know.
const deadlineSlack = 50 * time.Millisecond

// bounded is a pool whose queries are bounded by the server, too, in the same
// round trip. A cancel request that arrives before the server has begun the
// statement has no effect: the server would go on to wait for a lock, for a
// caller that is long gone, and append in the end.
type bounded struct {
	*pgxpool.Pool
	lockTimeout time.Duration // zero leaves the server's
}

// settingMillis is d as a setting of the server takes it: at most some 24 days.
func settingMillis(d time.Duration) int64 { return min(d.Milliseconds(), math.MaxInt32) }

// Query sends the bounds, if there are any, and the query together; together
// they are one transaction, with which the bounds end.
func (b bounded) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	deadline, hasDeadline := ctx.Deadline()
	if !hasDeadline && b.lockTimeout == 0 {
		return b.Pool.Query(ctx, sql, args...) //nolint:rowserrcheck // the caller does
	}
	var lock *string
	if b.lockTimeout > 0 {
		setting := lockTimeoutSetting(b.lockTimeout)
		lock = &setting
	}
	var statement *int64
	if hasDeadline {
		millis := settingMillis(max(clock.Until(deadline), 0) + deadlineSlack)
		statement = &millis
	}
	batch := &pgx.Batch{}
	batch.Queue(publishBoundsSQL, lock, statement)
	batch.Queue(sql, args...)
	results := b.SendBatch(ctx, batch)
	if _, err := results.Exec(); err != nil {
		_ = results.Close() // says the same
		return nil, err
	}
	rows, err := results.Query() //nolint:rowserrcheck // the caller does
	if err != nil {
		_ = results.Close() // says the same
		return nil, err
	}
	return &batchRows{Rows: rows, results: results}, nil
}

// batchRows are the rows of the last query of a batch. Their end is the end of
// the batch, and of its transaction, which may still fail.
type batchRows struct {
	pgx.Rows
	results pgx.BatchResults
	err     error
}

func (r *batchRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

func (r *batchRows) Close() {
	r.Rows.Close()
	r.err = r.results.Close()
}

func (r *batchRows) Err() error {
	if err := r.Rows.Err(); err != nil {
		return err
	}
	return r.err
}
