package shardpub

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
)

// poolConfig is the caller's, with few connections and our own settings on each.
func (n *Node) poolConfig() *pgxpool.Config {
	cfg := n.user.Config()
	cfg.MinConns, cfg.MinIdleConns, cfg.MaxConns = 0, 0, 2
	cfg.AfterRelease, cfg.BeforeClose = nil, nil
	// The caller's PrepareConn and BeforeAcquire are for the caller's connections.
	cfg.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) { return true, nil }
	after := cfg.AfterConnect
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		n.feed.suspect()
		return setUp(ctx, conn, after)
	}
	return cfg
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
	_, err := conn.Exec(ctx, settingsSQL)
	return err
}
