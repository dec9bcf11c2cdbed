package kiroku_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	osexec "os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/internal/pgtest"
	"github.com/suisha-go/suisha/kiroku"
)

// testdata/schema.golden is kiroku's schema after its migration 0011, a line
// per fact, on PostgreSQL 15 to 17.
func TestMigrateInstallsExactlyTheSchemaOfKiroku0011(t *testing.T) {
	t.Parallel()
	pool := store(t)
	golden, err := os.ReadFile("testdata/schema.golden")
	if err != nil {
		t.Fatal(err)
	}
	want := string(golden)
	if queryOne[int](t, pool, `select current_setting('server_version_num')::int`) >= 180000 {
		// The server has a generator of its own there.
		want = strings.Replace(want, "column events.event_id uuid not null kiroku.uuidv7()",
			"column events.event_id uuid not null uuidv7()", 1)
		want = strings.Replace(want, "function uuidv7() returns uuid language plpgsql",
			"function uuidv7() returns uuid language sql", 1)
	}
	got := describe(t, pool)
	wantLines, gotLines := strings.Split(want, "\n"), strings.Split(got, "\n")
	for _, line := range wantLines {
		if !slices.Contains(gotLines, line) {
			t.Errorf("missing: %s", line)
		}
	}
	for _, line := range gotLines {
		if !slices.Contains(wantLines, line) {
			t.Errorf("too much: %s", line)
		}
	}
}

func describe(tb testing.TB, pool *pgxpool.Pool) string {
	tb.Helper()
	return lines(tb, pool, "testdata/describe.sql")
}

func lines(tb testing.TB, pool *pgxpool.Pool, file string) string {
	tb.Helper()
	sql, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	rows, err := pool.Query(tb.Context(), string(sql))
	if err != nil {
		tb.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		tb.Fatal(err)
	}
	return strings.Join(lines, "\n") + "\n"
}

func TestMigrateLeavesWordOfItsInstallationAndRunsAgain(t *testing.T) {
	t.Parallel()
	pool := store(t)
	for range 2 {
		found, err := kiroku.Inspect(t.Context(), pool)
		if err != nil || found.Origin != kiroku.OriginSuisha || found.Through != 11 {
			t.Fatalf("%+v, %v", found, err)
		}
		if err := kiroku.Migrate(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
	}
}

func TestConcurrentMigrationsInstallOnce(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, nil)
	together(4, func(int) {
		if err := kiroku.Migrate(t.Context(), pool); err != nil {
			t.Error(err)
		}
	})
	if n := queryOne[int](t, pool, `select count(*) from suisha.kiroku_install`); n != 1 {
		t.Errorf("%d marks of an installation", n)
	}
}

// kiroku's tool holds the lock in a session while it works.
func TestMigrateWaitsForKirokusOwnTool(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, nil)
	tool, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tool.Release()
	exec(t, tool, `select pg_advisory_lock(8099547378373587553)`)
	done := make(chan error, 1)
	go func() { done <- kiroku.Migrate(t.Context(), pool) }()
	eventually(t, func() bool {
		return queryOne[bool](t, pool, `select exists (select from pg_locks where locktype = 'advisory' and not granted)`)
	})
	exec(t, tool, `create schema kiroku`) // half of a migration
	exec(t, tool, `select pg_advisory_unlock_all()`)
	refused := wantError[*kiroku.SchemaError](t, <-done)
	if refused.Object != "schema kiroku" {
		t.Errorf("refused for %+v", refused)
	}
}

func TestMigrateThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := kiroku.Migrate(ctx, pool); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
	if found, err := kiroku.Inspect(t.Context(), pool); err != nil || found.Origin != kiroku.OriginAbsent {
		t.Errorf("%+v, %v", found, err)
	}
}

func TestSchemaFilesInstallWithAnybodysTool(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, nil)
	err := fs.WalkDir(kiroku.Schema(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		ddl, err := fs.ReadFile(kiroku.Schema(), path)
		if err != nil {
			return err
		}
		_, err = pool.Exec(t.Context(), string(ddl))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	found, err := kiroku.Inspect(t.Context(), pool)
	if err != nil || found.Origin != kiroku.OriginUnknown {
		t.Fatalf("%+v, %v", found, err)
	}
	check := unchanged(t, pool)
	if err := kiroku.Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	check()
}

// catalog is everything that pg_dump --schema-only would write, or nearly.
func catalog(tb testing.TB, pool *pgxpool.Pool) string {
	tb.Helper()
	return lines(tb, pool, "testdata/catalog.sql")
}

// dump is what pg_dump writes; empty where there is none of the server's version.
func dump(tb testing.TB, pool *pgxpool.Pool) string {
	tb.Helper()
	tool, err := pgtest.Shared(tb).Tool("pg_dump")
	if err != nil {
		return ""
	}
	version, err := osexec.CommandContext(tb.Context(), tool, "--version").Output()
	major := queryOne[int](tb, pool, `select current_setting('server_version_num')::int / 10000`)
	if err != nil || !strings.Contains(string(version), fmt.Sprintf(") %d.", major)) {
		return ""
	}
	out := strings.Split(pgtest.Dump(tb, pgtest.DSN(pool)), "\n")
	out = slices.DeleteFunc(out, func(line string) bool { // a random key in each dump
		return strings.HasPrefix(line, `\restrict`) || strings.HasPrefix(line, `\unrestrict`)
	})
	return strings.Join(out, "\n")
}

// unchanged returns a check that nothing about the schema is different from now.
func unchanged(tb testing.TB, pool *pgxpool.Pool) (check func()) {
	tb.Helper()
	catalogBefore, dumpBefore := catalog(tb, pool), dump(tb, pool)
	if !strings.Contains(catalogBefore, "r kiroku.streams") {
		tb.Fatalf("no event store to compare in\n%s", catalogBefore)
	}
	return func() {
		tb.Helper()
		if after := catalog(tb, pool); after != catalogBefore {
			tb.Errorf("the catalog changed from\n%s\nto\n%s", catalogBefore, after)
		}
		if after := dump(tb, pool); after != dumpBefore {
			tb.Errorf("the dump changed from\n%s\nto\n%s", dumpBefore, after)
		}
	}
}
