package shardpub

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/internal/session"
)

// Waiting for the server.
const (
	connectTime = 5 * time.Second // to open a connection, at most
	pingTime    = 2 * time.Second // to see that one that lay idle for long still leads somewhere
	idleTime    = 7 * time.Second // after which one that is not needed is closed: more than polling takes
	// How much later than a lease runs out the server gives up a session whose
	// process it does not hear: a line that is broken is not a dead process.
	keepaliveMore = 15 * time.Second
)

// poolSize is how many connections read the log and write checkpoints.
const poolSize = 2

// openPools opens the pools; they connect when they are used.
func (n *Node) openPools() (err error) {
	ctx := context.Background() //nolint:forbidigo // closePools ends them
	if n.pool, err = pgxpool.NewWithConfig(ctx, n.poolConfig(poolSize)); err != nil {
		return err
	}
	if n.cfg.DisableSession {
		n.beats, err = pgxpool.NewWithConfig(ctx, n.poolConfig(1))
	}
	if err != nil {
		n.pool.Close()
	}
	return err
}

func (n *Node) closePools() {
	n.pool.Close()
	if n.beats != nil {
		n.beats.Close()
	}
}

// poolConfig is the caller's, with few connections and our own settings on each.
func (n *Node) poolConfig(conns int32) *pgxpool.Config {
	cfg := n.user.Config()
	cfg.MinConns, cfg.MinIdleConns, cfg.MaxConns = 0, 0, conns
	cfg.MaxConnIdleTime, cfg.HealthCheckPeriod = idleTime, idleTime/3
	cfg.PingTimeout = pingTime
	cfg.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool { return p.IdleDuration > idleTime }
	boundConnect(cfg.ConnConfig)
	cfg.AfterRelease, cfg.BeforeClose = nil, nil
	// The caller's PrepareConn and BeforeAcquire are for the caller's connections.
	cfg.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) { return true, nil }
	cfg.BeforeConnect = inTime(cfg.BeforeConnect)
	callers := cfg.AfterConnect
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if err := setUp(ctx, conn, callers); err != nil {
			return err
		}
		_, err := n.recognize(ctx, conn)
		return err
	}
	return cfg
}

// inTime gives the caller's BeforeConnect so long.
func inTime(before func(context.Context, *pgx.ConnConfig) error) func(context.Context, *pgx.ConnConfig) error {
	if before == nil {
		return nil
	}
	return func(ctx context.Context, cfg *pgx.ConnConfig) error {
		ctx, cancel := context.WithTimeout(ctx, connectTime)
		defer cancel()
		return before(ctx, cfg)
	}
}

// boundConnect bounds the time for each host of the address, not for all of them.
func boundConnect(cfg *pgx.ConnConfig) {
	if cfg.ConnectTimeout <= 0 || cfg.ConnectTimeout > connectTime {
		cfg.ConnectTimeout = connectTime
	}
}

// connect opens the session's connection.
func (n *Node) connect(ctx context.Context) (*pgx.Conn, error) {
	conn, err := n.open(ctx, session.Watch)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	ttl := n.cfg.Lease.TTL
	if _, err := conn.Exec(ctx, keepaliveSQL, seconds(ttl), milliseconds(ttl+keepaliveMore)); err != nil {
		_ = conn.Close(ctx)
		return nil, err
	}
	return conn, nil
}

// connectWatch opens a connection whose waits can be ended without ending it.
func (n *Node) connectWatch(ctx context.Context) (*pgx.Conn, error) {
	return n.open(ctx, func(c *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: c, DeadlineDelay: pingTime}
	})
}

// open opens a connection that leads to the server itself.
func (n *Node) open(ctx context.Context, handler func(*pgconn.PgConn) ctxwatch.Handler) (*pgx.Conn, error) {
	pool := n.user.Config()
	cfg := pool.ConnConfig
	if n.cfg.SessionDSN != "" {
		direct, err := pgx.ParseConfig(n.cfg.SessionDSN)
		if err != nil {
			return nil, err
		}
		cfg = direct
	} else if pool.BeforeConnect != nil {
		if err := inTime(pool.BeforeConnect)(ctx, cfg); err != nil {
			return nil, err
		}
	}
	// What the caller's connections do with notifications and with contexts that
	// end is not for these: they wait for the first and are interrupted by the second.
	cfg.OnNotification = nil
	boundConnect(cfg)
	cfg.BuildContextWatcherHandler = handler
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := setUp(ctx, conn, pool.AfterConnect); err != nil {
		_ = conn.Close(ctx)
		return nil, err
	}
	return conn, nil
}

// setUp makes a new connection what the caller's are (a role, a search path),
// and then ours.
func setUp(ctx context.Context, conn *pgx.Conn, callers func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	if callers != nil {
		if err := callers(ctx, conn); err != nil {
			return err
		}
	}
	_, err := conn.Exec(ctx, settingsSQL)
	return err
}
