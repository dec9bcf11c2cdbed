package pgtest_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/suisha-go/suisha/internal/pgserver"
	"github.com/suisha-go/suisha/internal/pgtest"
)

var migrations atomic.Int64

func fruit(ctx context.Context, pool *pgxpool.Pool) error {
	migrations.Add(1)
	_, err := pool.Exec(ctx, "create table public.fruit (name text primary key)")
	return err
}

func count(t *testing.T, pool *pgxpool.Pool) int {
	t.Helper()
	var n int
	if err := pool.QueryRow(t.Context(), "select count(*) from public.fruit").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestCloneIsIndependentOfTemplateAndOtherClones(t *testing.T) {
	t.Parallel()
	a, b := pgtest.New(t, fruit), pgtest.New(t, fruit)
	if _, err := a.Exec(t.Context(), "insert into public.fruit values ('plum')"); err != nil {
		t.Fatal(err)
	}
	if got := count(t, a); got != 1 {
		t.Errorf("first clone has %d rows, want 1", got)
	}
	for range 2 {
		if got := count(t, b); got != 0 {
			t.Errorf("another clone has %d rows, want 0", got)
		}
		b = pgtest.New(t, fruit)
	}
	if !pgserver.Configured() && migrations.Load() != 1 {
		t.Errorf("migrated %d times, want once per process", migrations.Load())
	}
}

func TestNilMigrateGivesAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, nil)
	var tables int
	err := pool.QueryRow(t.Context(), "select count(*) from pg_catalog.pg_tables where schemaname = 'public'").Scan(&tables)
	if err != nil || tables != 0 {
		t.Fatalf("%d tables, err %v, want none", tables, err)
	}
	if got := pool.Config().MaxConns; got != 20 {
		t.Errorf("MaxConns %d, want 20", got)
	}
}

func TestDatabaseIsDroppedAtCleanup(t *testing.T) { //nolint:tparallel // its subtest must end first
	t.Parallel()
	var name, dsn string
	t.Run("inner", func(t *testing.T) {
		pool := pgtest.New(t, fruit)
		dsn = pgtest.DSN(pool)
		if err := pool.QueryRow(t.Context(), "select current_database()").Scan(&name); err != nil {
			t.Fatal(err)
		}
		// A forgotten connection does not keep the database alive.
		conn, err := pgx.Connect(t.Context(), dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	})
	if !strings.HasPrefix(name, "suisha_test_") {
		t.Errorf("database is called %q, want suisha_test_…", name)
	}
	pool := pgtest.New(t, nil)
	var exists bool
	err := pool.QueryRow(t.Context(), "select exists (select from pg_catalog.pg_database where datname = $1)", name).Scan(&exists)
	if err != nil || exists {
		t.Errorf("database %s still exists = %v, err %v", name, exists, err)
	}
}

func TestFailingMigrationIsReported(t *testing.T) {
	t.Parallel()
	var rec recorder
	done := make(chan struct{})
	go func() {
		defer close(done)
		rec.TB = t
		pgtest.New(&rec, func(ctx context.Context, pool *pgxpool.Pool) error {
			_, err := pool.Exec(ctx, "select no_such_function()")
			return err
		})
	}()
	<-done
	if !strings.Contains(rec.fatal, "no_such_function") {
		t.Errorf("fatal message %q does not name the cause", rec.fatal)
	}
}

func TestSharedServerLeavesNoGoroutine(t *testing.T) { //nolint:paralleltest // others start goroutines
	pgtest.Shared(t)
	ignore := goleak.IgnoreCurrent()
	t.Run("inner", func(t *testing.T) {
		pgtest.New(t, fruit)
		pgtest.Server(t, pgserver.Options{})
	})
	goleak.VerifyNone(t, ignore)
}

func TestDumpShowsTheSchema(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, fruit)
	if dump := pgtest.Dump(t, pgtest.DSN(pool), "--no-owner"); !strings.Contains(dump, "CREATE TABLE public.fruit") {
		t.Errorf("dump lacks the table:\n%s", dump)
	}
}
