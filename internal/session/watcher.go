package session

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
)

// cancelTime is what the server has to answer a statement that it was told to
// cancel. After it the connection counts as lost.
const cancelTime = 500 * time.Millisecond

// idleKey marks the context of the wait for notifications.
type idleKey struct{}

// Watch is for pgconn's BuildContextWatcherHandler on a session's connection. The
// wait for notifications is interrupted on this side alone; a statement whose
// context ends is cancelled on the server, and the session stays.
func Watch(conn *pgconn.PgConn) ctxwatch.Handler {
	return &watcher{
		wait:      &pgconn.DeadlineContextWatcherHandler{Conn: conn.Conn()},
		statement: &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: cancelTime},
	}
}

type watcher struct {
	wait, statement ctxwatch.Handler
	used            ctxwatch.Handler
}

// HandleCancel implements ctxwatch.Handler.
func (w *watcher) HandleCancel(ctx context.Context) {
	w.used = w.statement
	if ctx.Value(idleKey{}) != nil {
		w.used = w.wait
	}
	w.used.HandleCancel(ctx)
}

// HandleUnwatchAfterCancel implements ctxwatch.Handler.
func (w *watcher) HandleUnwatchAfterCancel() { w.used.HandleUnwatchAfterCancel() }
