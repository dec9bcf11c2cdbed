package lease_test

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/internal/migrate"
	"github.com/suisha-go/suisha/internal/pgtest"
	"github.com/suisha-go/suisha/lease"
)

func shardDDL(t testing.TB) string {
	t.Helper()
	text, err := fs.ReadFile(lease.Schema(), "keiro/shards.sql")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// fingerprint tells whether any object of the two schemas changed.
func fingerprint(t testing.TB, pool *pgxpool.Pool) string {
	t.Helper()
	var text string
	err := pool.QueryRow(t.Context(), `select coalesce(string_agg(n.nspname || '.' || c.relname || ':' || c.oid || ':' || c.relfilenode, ' ' order by c.oid), '')
		from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname in ('keiro', 'suisha')`).Scan(&text)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestMigrateInstallsAndThenChangesNothing(t *testing.T) { // S-20
	t.Parallel()
	pool := pgtest.New(t, nil)
	if err := lease.Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	before := fingerprint(t, pool)
	if err := lease.Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	if after := fingerprint(t, pool); after != before {
		t.Errorf("changed from %s to %s", before, after)
	}
	var component, name, sum string
	if err := pool.QueryRow(t.Context(), `select component, name, sha256 from suisha.migrations where version = 1`).Scan(&component, &name, &sum); err != nil {
		t.Fatal(err)
	}
	if component != "lease" || name != "leases" || len(sum) != 64 {
		t.Errorf("recorded %q %q %q", component, name, sum)
	}
}

func TestMigrateConcurrently(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, nil)
	var wg sync.WaitGroup
	results := make([]error, 4)
	for i := range results {
		wg.Go(func() { results[i] = lease.Migrate(t.Context(), pool) })
	}
	wg.Wait()
	if err := errors.Join(results...); err != nil {
		t.Error(err)
	}
}

func TestMigrateAdoptsTheTableOfKeiro(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, nil)
	exec(t, pool, `create schema keiro`)
	exec(t, pool, shardDDL(t))
	exec(t, pool, `create table keiro.keiro_timers (id int)`)
	var before, after uint32
	oid := `select 'keiro.keiro_subscription_shards'::regclass::oid`
	if err := pool.QueryRow(t.Context(), oid).Scan(&before); err != nil {
		t.Fatal(err)
	}
	if err := lease.Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	if err := pool.QueryRow(t.Context(), oid).Scan(&after); err != nil || after != before {
		t.Errorf("another table, %v", err)
	}
}

func TestMigrateRefusesAnotherShapeAndSaysWhich(t *testing.T) {
	t.Parallel()
	tests := []struct{ change, names string }{
		{`alter table keiro.keiro_subscription_shards drop column heartbeat_at`, "heartbeat_at"},
		{`alter table keiro.keiro_subscription_shards alter bucket type bigint`, "bucket integer"},
		{`alter table keiro.keiro_subscription_shards alter updated_at drop default`, "updated_at"},
		{`alter table keiro.keiro_subscription_shards alter owner_worker_id type text`, "owner_worker_id uuid"},
		{`alter table keiro.keiro_subscription_shards drop constraint keiro_subscription_shards_bucket_range_chk`, "shard_count)))"},
		{`alter table keiro.keiro_subscription_shards drop constraint keiro_subscription_shards_pkey`, "PRIMARY KEY"},
		{`drop index keiro.keiro_subscription_shards_lease_idx`, "lease_expires_at"},
		{`alter table keiro.keiro_subscription_shards add column extra int not null`, "extra"},
		{`drop table keiro.keiro_subscription_shards; create table keiro.other (id int)`, "is missing"},
	}
	for _, test := range tests {
		pool := pgtest.New(t, nil)
		exec(t, pool, `create schema keiro`)
		exec(t, pool, shardDDL(t))
		exec(t, pool, test.change)
		before := fingerprint(t, pool)
		err := lease.Migrate(t.Context(), pool)
		var schema *lease.SchemaError
		if !errors.As(err, &schema) || schema.Cure == "" || !strings.Contains(err.Error(), test.names) {
			t.Errorf("%s: %v", test.change, err)
		}
		if after := fingerprint(t, pool); after != before {
			t.Errorf("%s: something was written", test.change)
		}
	}
}

func TestMigrateLetsHarmlessAdditionsPass(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, nil)
	exec(t, pool, `create schema keiro`)
	exec(t, pool, shardDDL(t))
	exec(t, pool, `alter table keiro.keiro_subscription_shards add column note text, add column n int not null default 0`)
	if err := lease.Migrate(t.Context(), pool); err != nil {
		t.Error(err)
	}
}

func TestMigrateRefusesDrift(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, lease.Migrate)
	exec(t, pool, `update suisha.migrations set sha256 = 'x'`)
	err := lease.Migrate(t.Context(), pool)
	var drift *migrate.DriftError
	if !errors.As(err, &drift) || drift.Component != "lease" || drift.Version != 1 {
		t.Errorf("got %v", err)
	}
}

func TestMissingSchemaIsATypedErrorThatNamesTheCure(t *testing.T) { // P-4
	t.Parallel()
	pool := pgtest.New(t, nil)
	var schema *lease.SchemaError
	if err := ensure(t.Context(), pool, subscription(1)); !errors.As(err, &schema) || !strings.Contains(err.Error(), "Migrate") {
		t.Errorf("ensure: %v", err)
	}
	w := newWorker(t, newStore(pool), calm, 1)
	var pass *lease.PassError
	if _, err := w.Once(t.Context()); !errors.As(err, &schema) || !errors.As(err, &pass) || pass.Step != lease.StepJoin {
		t.Errorf("pass: %v", err)
	}
}

// asRole is a pool of connections of that role.
func asRole(t testing.TB, pool *pgxpool.Pool, role string) *pgxpool.Pool {
	t.Helper()
	cfg := pool.Config().Copy()
	cfg.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "set role "+pgx.Identifier{role}.Sanitize())
		return err
	}
	p, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func TestGrantsAreEnoughAndNeeded(t *testing.T) { // P-4
	t.Parallel()
	pool := pgtest.New(t, lease.Migrate)
	role := `app "x" ` + uuid.NewString()
	exec(t, pool, "create role "+pgx.Identifier{role}.Sanitize())
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_, _ = pool.Exec(ctx, "drop owned by "+pgx.Identifier{role}.Sanitize())
		_, _ = pool.Exec(ctx, "drop role "+pgx.Identifier{role}.Sanitize())
	})
	app := asRole(t, pool, role)
	var missing *lease.PrivilegeError
	if err := ensure(t.Context(), app, subscription(2)); !errors.As(err, &missing) || !strings.Contains(err.Error(), "Grants") {
		t.Errorf("without grants: %v", err)
	}
	sql, err := lease.Grants(role)
	if err != nil {
		t.Fatal(err)
	}
	exec(t, pool, sql)
	if err := ensure(t.Context(), app, subscription(2)); err != nil {
		t.Fatal(err)
	}
	s := newStore(app)
	w := newWorker(t, s, calm, 2).start(t)
	eventually(t, "owns all", func() bool { return len(owned(t, pool, w.id)) == 2 })
	if _, err := lease.Relinquish(t.Context(), app, name, uuid.New(), false); err != nil {
		t.Error(err)
	}
	w.stop()
	if err := <-w.done; err != nil {
		t.Error(err)
	}
	if errs := w.reported(); len(errs) > 0 {
		t.Errorf("reported %v", errs)
	}
	if err := lease.Migrate(t.Context(), app); err != nil { // nothing to do: no DDL, no privilege needed
		t.Errorf("migrate: %v", err)
	}
	if _, err := lease.Grants(""); err == nil {
		t.Error("grants to nobody")
	}
}

func TestEveryStatementPrepares(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, lease.Migrate)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	files, err := fs.Glob(statements, "sql/*.sql")
	if err != nil || len(files) < 15 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		text, err := fs.ReadFile(statements, file)
		if err != nil {
			t.Fatal(err)
		}
		base := path.Base(file)
		if !strings.HasPrefix(string(text), "-- ") {
			t.Errorf("%s has no head comment", base)
		}
		if slices.Contains([]string{"grants.sql", "schema_create.sql"}, base) { // not one statement, or there already
			continue
		}
		sql, _, err := pgx.NamedArgs{}.RewriteQuery(t.Context(), conn.Conn(), string(text), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Conn().Prepare(t.Context(), base, sql); err != nil {
			t.Errorf("%s: %v", base, err)
		}
	}
}
