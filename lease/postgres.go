package lease

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// DB is what statements run on: a *pgxpool.Pool, a *pgx.Conn or a pgx.Tx.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Runner lends a connection for one statement. The connection must run at READ
// COMMITTED, PostgreSQL's default: the claim rests on it.
type Runner interface {
	Do(ctx context.Context, f func(context.Context, *pgx.Conn) error) error
}

// PoolRunner is a [Runner] on a pool, for tools and tests. A worker keeps its
// leases on a session of its own: handlers may hold every connection of a pool.
func PoolRunner(pool *pgxpool.Pool) Runner { return poolRunner{pool: pool} }

type poolRunner struct{ pool *pgxpool.Pool }

func (r poolRunner) Do(ctx context.Context, f func(context.Context, *pgx.Conn) error) error {
	return r.pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error { return f(ctx, c.Conn()) })
}

// Postgres is the [Store] in PostgreSQL, for all Keepers of a process. Its methods are
// safe for concurrent use if the Runner's is. Beats that come while another is under
// way share the next statement. Errors are [*SchemaError], [*PrivilegeError] or the
// Runner's.
type Postgres struct {
	run   Runner
	beats beats
}

// NewPostgres makes the store. It touches nothing.
func NewPostgres(run Runner) *Postgres {
	return &Postgres{run: run, beats: beats{turn: make(chan struct{}, 1)}}
}

var _ Store = (*Postgres)(nil)

// Join implements [Store].
func (p *Postgres) Join(ctx context.Context, w Presence) error {
	labels := []byte("{}")
	if len(w.Labels) > 0 {
		var err error
		if labels, err = json.Marshal(w.Labels); err != nil {
			return fmt.Errorf("labels: %w", err)
		}
	}
	return p.exec(ctx, joinSQL, pgx.NamedArgs{
		"subscription": w.Subscription,
		"worker":       w.Identity.Worker,
		"host":         w.Identity.Host,
		"pid":          w.Identity.PID,
		"version":      w.Identity.Version,
		"lock":         w.Lock,
		"weight":       w.Weight,
		"labels":       string(labels),
		"ttl":          w.TTL.Milliseconds(),
	})
}

// Give implements [Store].
func (p *Postgres) Give(ctx context.Context, g Giving) error {
	return p.exec(ctx, giveSQL, pgx.NamedArgs{
		"subscription": g.Subscription,
		"worker":       g.Worker,
		"giving":       list(g.Buckets),
	})
}

// Claim implements [Store].
func (p *Postgres) Claim(ctx context.Context, c Claim) ([]int, error) {
	buckets := make([]int, len(c.Wanted))
	expected := make([]string, len(c.Wanted)) // text: every exec mode can send it
	expiries := make([]int64, len(c.Wanted))
	for i, w := range c.Wanted {
		buckets[i], expected[i], expiries[i] = w.Bucket, w.Expected.String(), w.Expiry
	}
	return p.buckets(ctx, claimSQL, pgx.NamedArgs{
		"subscription": c.Subscription,
		"shards":       c.Shards,
		"worker":       c.Worker,
		"ttl":          c.TTL.Milliseconds(),
		"buckets":      buckets,
		"expected":     expected,
		"expiries":     expiries,
	})
}

// Release implements [Store].
func (p *Postgres) Release(ctx context.Context, r Release) ([]int, error) {
	return p.buckets(ctx, releaseSQL, pgx.NamedArgs{
		"subscription": r.Subscription,
		"shards":       r.Shards,
		"worker":       r.Worker,
		"buckets":      list(r.Buckets),
	})
}

// Leave implements [Store].
func (p *Postgres) Leave(ctx context.Context, subscription string, worker uuid.UUID) error {
	return p.exec(ctx, leaveSQL, pgx.NamedArgs{"subscription": subscription, "worker": worker})
}

func (p *Postgres) exec(ctx context.Context, sql string, args pgx.NamedArgs) error {
	return typed(p.run.Do(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sql, args)
		return err
	}))
}

func (p *Postgres) buckets(ctx context.Context, sql string, args pgx.NamedArgs) ([]int, error) {
	var got []int
	err := p.run.Do(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, sql, args)
		if err != nil {
			return err
		}
		got, err = pgx.CollectRows(rows, pgx.RowTo[int])
		return err
	})
	if err != nil {
		return nil, typed(err)
	}
	return got, nil
}

// list is never nil: a nil slice would be sent as SQL NULL.
func list(buckets []int) []int {
	if buckets == nil {
		return []int{}
	}
	return buckets
}

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
