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

func TestGrantsAreEnoughAndNoMoreThanNeeded(t *testing.T) {
	t.Parallel()
	pool := store(t)
	role := `odd "role" ` + newID().String()[:8]
	quoted := pgx.Identifier{role}.Sanitize()
	exec(t, pool, `create role `+quoted)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		for _, sql := range []string{`drop owned by ` + quoted, `drop role ` + quoted} {
			if _, err := pool.Exec(ctx, sql); err != nil {
				t.Error(err)
			}
		}
	})
	as := func(check func(tx pgx.Tx)) {
		t.Helper()
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
		exec(t, tx, `set local role `+quoted)
		check(tx)
	}
	as(func(tx pgx.Tx) {
		missing := wantError[*kiroku.GrantError](t, kiroku.CheckGrants(t.Context(), tx, false))
		if missing.Object != "schema kiroku" || missing.Privilege != "USAGE" {
			t.Errorf("missing %+v", missing)
		}
	})
	grants, err := kiroku.Grants(role)
	if err != nil {
		t.Fatal(err)
	}
	exec(t, pool, grants)
	as(func(tx pgx.Tx) {
		if err := kiroku.CheckGrants(t.Context(), tx, true); err != nil {
			t.Error(err)
		}
		if err := kiroku.Verify(t.Context(), tx); err != nil {
			t.Error(err)
		}
		appended := mustAppend(t, tx, "granted-1", 2)
		mustAppend(t, tx, "granted-1", 1)
		if _, err := kiroku.SeedCheckpoints(t.Context(), tx, "s", 4, kiroku.FromHead()); err != nil {
			t.Error(err)
		}
		letter := deadLetter("s", 1, appended.Position, appended.EventIDs[1])
		if _, err := kiroku.RecordDeadLetter(t.Context(), tx, letter, appended.Position); err != nil {
			t.Error(err)
		}
		if _, err := tx.Exec(t.Context(), `delete from kiroku.dead_letters`); err == nil {
			t.Error("the role may delete")
		}
	})
}

func TestCheckGrantsNamesEachMissingPrivilege(t *testing.T) {
	t.Parallel()
	pool := store(t)
	role := "consumer_" + newID().String()[:8]
	exec(t, pool, `create role `+role)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_, err := pool.Exec(ctx, `drop owned by `+role)
		if _, err2 := pool.Exec(ctx, `drop role `+role); err != nil || err2 != nil {
			t.Error(err, err2)
		}
	})
	grants, err := kiroku.Grants(role)
	if err != nil {
		t.Fatal(err)
	}
	exec(t, pool, grants)
	// What upstream's guide forgets, and a right of writers.
	exec(t, pool, `revoke all on kiroku.dead_letters from `+role)
	exec(t, pool, `revoke all on sequence kiroku.subscriptions_subscription_id_seq from `+role)
	exec(t, pool, `revoke insert on kiroku.events from `+role)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	exec(t, tx, `set local role `+role)
	for _, writer := range []bool{false, true} {
		text := kiroku.CheckGrants(t.Context(), tx, writer).Error()
		for _, want := range []string{
			"SELECT on kiroku.dead_letters", "INSERT on kiroku.dead_letters", "USAGE on kiroku.subscriptions_subscription_id_seq",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("writer %v: %q is not in %q", writer, want, text)
			}
		}
		if strings.Contains(text, "INSERT on kiroku.events") != writer {
			t.Errorf("writer %v: %q", writer, text)
		}
	}
}

func TestGrantsRefusesWhatIsNoRole(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"", strings.Repeat("r", 64), "a\x00b", "\xff"} {
		if sql, err := kiroku.Grants(role); !errors.Is(err, kiroku.ErrInvalid) {
			t.Errorf("%q: %q, %v", role, sql, err)
		}
	}
}
