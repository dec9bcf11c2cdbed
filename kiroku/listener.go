package kiroku

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/suisha-go/suisha/internal/session"
)

// ListenerConfig says what a [Listener] tells, and whom. Its functions are
// called one at a time, from within Run, and must not block.
type ListenerConfig struct {
	// OnAppend is called for every stream that was appended to. Required.
	OnAppend func(Notification)
	// OnListening is called on every connection, also the first, once it listens:
	// what was appended before is not told, so go and read.
	OnListening func()
	// OnError, if set, is told why a connection was lost or could not be had, and
	// of payloads that are none (a [*NotificationError]).
	OnError func(error)
}

// Listener tells of appends while it runs, on a connection of its own. It
// reconnects for ever, 50 ms to 2 s apart.
type Listener struct {
	session *session.Session
	cfg     ListenerConfig
}

// NewListener makes a listener; Run connects it. connect opens a connection that
// is a session: behind a transaction pooler nothing is ever told.
func NewListener(connect func(ctx context.Context) (*pgx.Conn, error), cfg ListenerConfig) *Listener {
	l := &Listener{cfg: cfg}
	l.session = session.New(session.Config{
		Connect:   connect,
		Channels:  []string{Channel},
		OnNotify:  l.notified,
		OnConnect: l.connected,
		OnError:   cfg.OnError,
	})
	return l
}

// Run listens until ctx ends, then closes the connection and returns nil. Call
// it once.
func (l *Listener) Run(ctx context.Context) error { return l.session.Run(ctx) }

func (l *Listener) connected(context.Context, *pgx.Conn) error {
	if l.cfg.OnListening != nil {
		l.cfg.OnListening()
	}
	return nil
}

func (l *Listener) notified(n *pgconn.Notification) {
	parsed, err := ParseNotification(n.Payload)
	switch {
	case err == nil:
		l.cfg.OnAppend(parsed)
	case l.cfg.OnError != nil:
		l.cfg.OnError(err)
	}
}
