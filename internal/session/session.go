// Package session keeps one dedicated connection that listens and runs
// statements, and reconnects for as long as it runs.
package session

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrDisconnected: there was no connection before the context ended.
var ErrDisconnected = errors.New("session: not connected")

// Config says how to connect and what to listen to.
type Config struct {
	// Connect opens the connection, with [Watch] as its watcher. Required.
	Connect func(context.Context) (*pgx.Conn, error)
	// Channels are listened to on every connection, quoted by the session.
	Channels []string
	// OnNotify receives notifications, one at a time. It must not block.
	OnNotify func(*pgconn.Notification)
	// OnConnect runs on every new connection, after LISTEN: what was notified
	// before it is lost, so look for yourself. An error drops the connection. Its
	// context ends with the connection.
	OnConnect func(context.Context, *pgx.Conn) error
	// OnError receives why a connection could not be had or was lost.
	OnError func(error)
	// MinBackoff and MaxBackoff bound the wait before another try. Zero: 50 ms
	// and 2 s.
	MinBackoff, MaxBackoff time.Duration
}

// Session is one dedicated connection. Its methods are safe for concurrent use.
type Session struct {
	cfg Config

	mu        sync.Mutex // guards what follows
	queue     []*request
	conn      *pgx.Conn          // that of now, nil without
	interrupt context.CancelFunc // ends the wait for a notification

	ended chan struct{} // closed when Run has returned
}

type request struct {
	ctx  context.Context //nolint:containedctx // the caller's, for the time of its call
	f    func(context.Context, *pgx.Conn) error
	done chan error
}

// New makes a session; Run connects it.
func New(cfg Config) *Session {
	if cfg.MinBackoff <= 0 {
		cfg.MinBackoff = 50 * time.Millisecond
	}
	if cfg.MaxBackoff <= 0 {
		cfg.MaxBackoff = 2 * time.Second
	}
	return &Session{cfg: cfg, ended: make(chan struct{})}
}

// Do runs f on the connection and returns its error. Calls take turns, in
// order; the wait for notifications is interrupted and loses none. A context
// that ends while f runs cancels its statement on the server (see Watch). Without a
// connection Do waits for one until ctx ends and then returns ErrDisconnected
// with ctx's error; after Run has ended, ErrDisconnected at once.
func (s *Session) Do(ctx context.Context, f func(context.Context, *pgx.Conn) error) error {
	r := &request{ctx: ctx, f: f, done: make(chan error, 1)}
	s.enqueue(r)
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		if s.withdraw(r) {
			return fmt.Errorf("%w: %w", ErrDisconnected, context.Cause(ctx))
		}
	case <-s.ended:
		if s.withdraw(r) {
			return ErrDisconnected
		}
	}
	return <-r.done // it runs: its statement ends with ctx
}

func (s *Session) enqueue(r *request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, r)
	if s.interrupt != nil {
		s.interrupt()
	}
}

// withdraw takes a request back that has not begun.
func (s *Session) withdraw(r *request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, q := range s.queue {
		if q == r {
			s.queue = append(s.queue[:i], s.queue[i+1:]...)
			return true
		}
	}
	return false
}

// next takes the oldest request; without one it arms the interrupt.
func (s *Session) next(interrupt context.CancelFunc) *request {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) > 0 {
		r := s.queue[0]
		s.queue = s.queue[1:]
		return r
	}
	s.interrupt = interrupt
	return nil
}

func (s *Session) disarm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.interrupt = nil
}

// Run connects, serves and reconnects until ctx ends, then closes the
// connection and returns nil. Call it once. From then on Do finds no connection.
func (s *Session) Run(ctx context.Context) error {
	defer close(s.ended)
	backoff := s.cfg.MinBackoff
	for ctx.Err() == nil {
		served, err := s.connectAndServe(ctx)
		if ctx.Err() != nil {
			break
		}
		if err != nil && s.cfg.OnError != nil {
			s.cfg.OnError(err)
		}
		if served {
			backoff = s.cfg.MinBackoff
		}
		pause(ctx, time.Duration(float64(backoff)*(0.5+rand.Float64())))
		backoff = min(2*backoff, s.cfg.MaxBackoff)
	}
	return nil
}

func (s *Session) connectAndServe(ctx context.Context) (served bool, err error) {
	ctx, gone := context.WithCancel(ctx)
	defer gone()
	conn, err := s.cfg.Connect(ctx)
	if err != nil {
		return false, fmt.Errorf("session: connect: %w", err)
	}
	defer closeConn(ctx, conn)
	if err := s.listen(ctx, conn); err != nil {
		return false, err
	}
	if s.cfg.OnConnect != nil {
		if err := s.cfg.OnConnect(ctx, conn); err != nil {
			return false, fmt.Errorf("session: on connect: %w", err)
		}
	}
	s.serving(conn)
	defer s.serving(nil)
	return true, s.serve(ctx, conn)
}

// listenTime bounds all LISTENs of a connection.
const listenTime = 5 * time.Second

func (s *Session) listen(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, listenTime)
	defer cancel()
	for _, channel := range s.cfg.Channels {
		if _, err := conn.Exec(ctx, "listen "+pgx.Identifier{channel}.Sanitize()); err != nil {
			return fmt.Errorf("session: listen to %q: %w", channel, err)
		}
	}
	return nil
}

func (s *Session) serving(conn *pgx.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn = conn
}

// Reconnect drops the connection, if there is one, and has another opened. It
// does not block.
func (s *Session) Reconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		_ = s.conn.PgConn().Conn().Close()
	}
}

// serve runs requests and hands out notifications until the connection breaks.
func (s *Session) serve(ctx context.Context, conn *pgx.Conn) error {
	for {
		wait, interrupt := context.WithCancel(context.WithValue(ctx, idleKey{}, true))
		r := s.next(interrupt)
		if r != nil {
			interrupt()
			r.done <- r.f(r.ctx, conn)
			if conn.IsClosed() {
				return errors.New("session: connection lost while running a statement")
			}
			continue
		}
		n, err := conn.WaitForNotification(wait)
		s.disarm()
		interrupt()
		switch {
		case err == nil:
			if n != nil && s.cfg.OnNotify != nil {
				s.cfg.OnNotify(n)
			}
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case conn.IsClosed():
			return fmt.Errorf("session: connection lost: %w", err)
		case wait.Err() == nil:
			return fmt.Errorf("session: wait: %w", err)
		}
	}
}

// closeConn says goodbye within a second, also when ctx has ended.
func closeConn(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
