package session_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/internal/pgtest"
	"github.com/suisha-go/suisha/internal/session"
)

const channel = "a.channel" // needs quoting

// started runs a session on a database of its own until the test ends.
func started(t *testing.T, change func(*session.Config)) (*session.Session, *pgxpool.Pool) {
	t.Helper()
	pool := pgtest.New(t, nil)
	cfg := session.Config{
		Connect: func(ctx context.Context) (*pgx.Conn, error) {
			cfg := pool.Config().ConnConfig
			cfg.BuildContextWatcherHandler = session.Watch
			return pgx.ConnectConfig(ctx, cfg)
		},
		Channels: []string{channel},
	}
	if change != nil {
		change(&cfg)
	}
	s := session.New(cfg)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return s, pool
}

func pid(t *testing.T, s *session.Session) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var pid int
	err := s.Do(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `select pg_backend_pid()`).Scan(&pid)
	})
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// Statements interrupt the wait for notifications and lose none of them.
func TestStatementsLoseNoNotification(t *testing.T) {
	t.Parallel()
	const sent = 500
	var mu sync.Mutex
	seen := map[string]bool{}
	all := make(chan struct{})
	s, pool := started(t, func(c *session.Config) {
		c.OnNotify = func(n *pgconn.Notification) {
			mu.Lock()
			defer mu.Unlock()
			seen[n.Payload] = true
			if len(seen) == sent {
				close(all)
			}
		}
	})
	first := pid(t, s)
	stop := make(chan struct{})
	var statements atomic.Int64
	go func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := s.Do(t.Context(), func(ctx context.Context, conn *pgx.Conn) error {
				_, err := conn.Exec(ctx, `select 1`)
				return err
			}); err == nil {
				statements.Add(1)
			}
		}
	}()
	for i := range sent {
		if _, err := pool.Exec(t.Context(), `select pg_notify($1, $2)`, channel, strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-all:
	case <-time.After(time.Minute):
		t.Error("notifications were lost")
	}
	close(stop)
	if statements.Load() == 0 {
		t.Error("no statement ran meanwhile")
	}
	if again := pid(t, s); again != first {
		t.Errorf("the connection changed from %d to %d", first, again)
	}
}

// A connection that is lost comes back, listens again, and says so.
func TestLostConnectionComesBackAndListensAgain(t *testing.T) {
	t.Parallel()
	connects := make(chan struct{}, 10)
	lost := make(chan error, 10)
	notes := make(chan string, 10)
	s, pool := started(t, func(c *session.Config) {
		c.OnConnect = func(context.Context, *pgx.Conn) error { connects <- struct{}{}; return nil }
		c.OnError = func(err error) { lost <- err }
		c.OnNotify = func(n *pgconn.Notification) { notes <- n.Payload }
	})
	<-connects
	old := pid(t, s)
	if _, err := pool.Exec(t.Context(), `select pg_terminate_backend($1)`, old); err != nil {
		t.Fatal(err)
	}
	<-lost
	<-connects
	if now := pid(t, s); now == old {
		t.Error("the backend is the same")
	}
	if _, err := pool.Exec(t.Context(), `select pg_notify($1, 'hello')`, channel); err != nil {
		t.Fatal(err)
	}
	if got := <-notes; got != "hello" {
		t.Errorf("got %q", got)
	}
}

// A statement that takes too long is cancelled on the server and costs nothing
// else: the session stays, and goes on to hear.
func TestStatementThatTakesTooLongDoesNotCostTheSession(t *testing.T) {
	t.Parallel()
	notes := make(chan string, 10)
	s, pool := started(t, func(c *session.Config) {
		c.OnNotify = func(n *pgconn.Notification) { notes <- n.Payload }
	})
	first := pid(t, s)
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		err := s.Do(ctx, func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, `select pg_sleep(30)`)
			return err
		})
		cancel()
		if err == nil {
			t.Error("it did not take too long")
		}
	}
	if now := pid(t, s); now != first {
		t.Errorf("the connection changed from %d to %d", first, now)
	}
	if _, err := pool.Exec(t.Context(), `select pg_notify($1, 'hello')`, channel); err != nil {
		t.Fatal(err)
	}
	if got := <-notes; got != "hello" {
		t.Errorf("got %q", got)
	}
}

// Reconnect drops the connection, and another takes its place.
func TestReconnectGetsAnotherConnection(t *testing.T) {
	t.Parallel()
	s, _ := started(t, nil)
	first := pid(t, s)
	s.Reconnect()
	for now := first; now == first; {
		_ = s.Do(t.Context(), func(ctx context.Context, conn *pgx.Conn) error { // fails while the old one goes
			return conn.QueryRow(ctx, `select pg_backend_pid()`).Scan(&now)
		})
	}
}

// Calls take turns, in order, and each gets its own error.
func TestCallsTakeTurnsAndGetTheirOwnErrors(t *testing.T) {
	t.Parallel()
	s, _ := started(t, nil)
	var inside atomic.Int64
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			want := fmt.Errorf("call %d", i)
			err := s.Do(t.Context(), func(ctx context.Context, conn *pgx.Conn) error {
				if inside.Add(1) != 1 {
					t.Error("two calls at once")
				}
				defer inside.Add(-1)
				if _, err := conn.Exec(ctx, `select 1`); err != nil {
					return err
				}
				return want
			})
			if !errors.Is(err, want) {
				t.Errorf("call %d: %v", i, err)
			}
		})
	}
	wg.Wait()
}

// Without a connection a call waits for its context, and no longer; after Run
// has ended it does not wait at all.
func TestCallWithoutConnectionEndsWithItsContext(t *testing.T) {
	t.Parallel()
	refused := errors.New("no server")
	s := session.New(session.Config{Connect: func(context.Context) (*pgx.Conn, error) { return nil, refused }})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	call, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	never := func(context.Context, *pgx.Conn) error { t.Error("called without a connection"); return nil }
	if err := s.Do(call, never); !errors.Is(err, session.ErrDisconnected) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	stop()
	<-done
	if err := s.Do(t.Context(), never); !errors.Is(err, session.ErrDisconnected) {
		t.Errorf("after Run: %v", err)
	}
}
