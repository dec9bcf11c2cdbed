// Package pgtest gives a test a PostgreSQL database of its own.
//
// All tests of a process share one server, which is started when the first
// test asks for it and ends with the process. Each test gets a clone of a
// template that is migrated once. A database per test also keeps apart what
// schemas do not: notifications and advisory locks.
//
// Without a server a test fails; it is never skipped.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/internal/pgserver"
)

// Bounds of what happens around a test. The first start may download the
// server's programs.
const (
	startLimit   = 5 * time.Minute
	createLimit  = 2 * time.Minute
	cleanupLimit = time.Minute
	closeLimit   = 15 * time.Second
)

const (
	poolMaxConns         = 20
	sharedMaxConnections = 400
)

// Migrate brings an empty database to the state that a test starts from.
type Migrate = func(context.Context, *pgxpool.Pool) error

var shared struct {
	once   sync.Once
	server *pgserver.Server
	err    error
}

// Shared returns the server that the tests of this process share. Do not
// restart it: ask Server for a private one.
func Shared(tb testing.TB) *pgserver.Server {
	tb.Helper()
	shared.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), startLimit)
		defer cancel()
		if pgserver.Configured() {
			shared.server, shared.err = pgserver.Open(ctx)
			return
		}
		shared.server, shared.err = pgserver.Start(ctx, pgserver.Options{MaxConnections: sharedMaxConnections})
	})
	if shared.err != nil {
		tb.Fatalf("pgtest: %v", shared.err)
	}
	return shared.server
}

// Server starts a private server for this test and stops it at cleanup.
// DATABASE_URL has no say: such a server is one that a test may restart.
func Server(tb testing.TB, o pgserver.Options) *pgserver.Server {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), startLimit)
	defer cancel()
	s, err := pgserver.Start(ctx, o)
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	tb.Cleanup(func() {
		if err := s.Stop(); err != nil {
			tb.Errorf("pgtest: %v", err)
		}
	})
	return s
}

// New returns a pool on a fresh database of the shared server: a clone of the
// template that migrate made, or an empty database when migrate is nil. Pool
// and database end with the test, after the cleanups registered later.
//
// Templates are told apart by the code of migrate. So it must be a plain
// function: two closures of one literal would share the first one's template.
func New(tb testing.TB, migrate Migrate) *pgxpool.Pool {
	tb.Helper()
	s := Shared(tb)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), createLimit)
	defer cancel()
	template, release, err := acquireTemplate(ctx, s, migrate)
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	name := databaseName()
	dsn, err := s.CreateDatabase(ctx, name, template)
	if err != nil {
		tb.Fatalf("pgtest: %v", errors.Join(err, release(ctx)))
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), cleanupLimit)
		defer cancel()
		if err := s.DropDatabase(ctx, name); err != nil {
			tb.Errorf("pgtest: %v", err)
		}
		if err := release(ctx); err != nil {
			tb.Errorf("pgtest: %v", err)
		}
	})
	pool, err := connect(ctx, dsn)
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	tb.Cleanup(func() { closePool(tb, pool) })
	return pool
}

func connect(ctx context.Context, dsn string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = poolMaxConns
	// The pool's own life is not bounded by the creation.
	return pgxpool.NewWithConfig(context.WithoutCancel(ctx), cfg)
}

// closePool closes the pool. A connection that nobody gave back is the test's
// fault and is said, not waited for.
func closePool(tb testing.TB, pool *pgxpool.Pool) {
	tb.Helper()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		pool.Close()
	}()
	select {
	case <-closed:
	case <-time.After(closeLimit):
		tb.Errorf("pgtest: %d connections of the pool are still in use %v after the test", pool.Stat().AcquiredConns(), closeLimit)
	}
}

// DSN returns the connection string of the pool's database, for child
// processes and connections outside the pool.
func DSN(pool *pgxpool.Pool) string { return pool.Config().ConnString() }

// Dump returns what pg_dump --schema-only writes about a database. Further
// arguments go to pg_dump. Without pg_dump the test fails.
func Dump(tb testing.TB, dsn string, args ...string) string {
	tb.Helper()
	pgDump, err := Shared(tb).Tool("pg_dump")
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	cmd := exec.CommandContext(tb.Context(), pgDump, append([]string{"--schema-only", "--dbname", dsn}, args...)...)
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		tb.Fatalf("pgtest: pg_dump: %v", err)
	}
	return string(out)
}
