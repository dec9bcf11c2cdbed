package shardpub

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Waiting for the server.
const (
	connectTime = 5 * time.Second // to open a connection, at most
	pingTime    = 2 * time.Second // to see that one that lay idle still leads somewhere
)

// openPools opens the pools; they connect when they are used.
func (n *Node) openPools() (err error) {
	ctx := context.Background() //nolint:forbidigo // closePools ends them
	if n.pool, err = pgxpool.NewWithConfig(ctx, n.poolConfig(2)); err != nil {
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
	cfg.PingTimeout = pingTime
	boundConnect(cfg.ConnConfig)
	cfg.AfterRelease, cfg.BeforeClose = nil, nil
	// The caller's PrepareConn and BeforeAcquire are for the caller's connections.
	cfg.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) { return true, nil }
	callers := cfg.AfterConnect
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if err := setUp(ctx, conn, callers); err != nil {
			return err
		}
		return n.history.recognize(ctx, conn)
	}
	return cfg
}

func boundConnect(cfg *pgx.ConnConfig) {
	if cfg.ConnectTimeout <= 0 || cfg.ConnectTimeout > connectTime {
		cfg.ConnectTimeout = connectTime
	}
}

// connect opens the session's connection.
func (n *Node) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	pool := n.user.Config()
	cfg := pool.ConnConfig
	if n.cfg.SessionDSN != "" {
		direct, err := pgx.ParseConfig(n.cfg.SessionDSN)
		if err != nil {
			return nil, err
		}
		cfg = direct
	} else if pool.BeforeConnect != nil {
		if err := pool.BeforeConnect(ctx, cfg); err != nil {
			return nil, err
		}
	}
	// What the caller's connections do with notifications and with contexts that
	// end is not for this one: it waits for the first and interrupts by the second.
	cfg.OnNotification = nil
	cfg.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.DeadlineContextWatcherHandler{Conn: c.Conn()}
	}
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
	if callers != nil {
		if err := callers(ctx, conn); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	_, err := conn.Exec(ctx, settingsSQL)
	return err
}
