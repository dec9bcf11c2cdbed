package kiroku_test

import (
	"context"
	"errors"
	"testing"

	"github.com/suisha-go/suisha/internal/pgtest"
	"github.com/suisha-go/suisha/kiroku"
)

func TestMigrateKnowsTheLedgerOfCodd(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, haskell)
	exec(t, pool, `drop schema pgmigrate cascade`)
	names := []string{
		"2026-05-16-12-17-14-kiroku-bootstrap.sql",
		"2026-05-29-15-26-04-add-subscription-dead-letters.sql",
		"2026-06-14-13-17-09-notify-trigger-append-guard.sql",
		"2026-06-14-13-25-40-dead-letters-event-id-index.sql",
		"2026-06-14-13-54-48-index-hygiene-and-streams-fillfactor.sql",
		"2026-06-14-14-01-17-stream-name-length-check.sql",
		"2026-06-24-09-42-22-stream-truncate-before.sql",
	}
	for _, schema := range []string{"codd", "codd_schema"} {
		t.Run(schema, func(t *testing.T) {
			t.Parallel()
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
			exec(t, tx, `create schema `+schema)
			exec(t, tx, `create table `+schema+`.sql_migrations (name text not null)`)
			exec(t, tx, `insert into `+schema+`.sql_migrations values ('2026-01-01-00-00-00-somebody-elses.sql'), ('x')`)
			if found, err := kiroku.Inspect(t.Context(), tx); err != nil || found.Origin != kiroku.OriginUnknown {
				t.Errorf("without kiroku's rows: %+v, %v", found, err)
			}
			exec(t, tx, `insert into `+schema+`.sql_migrations select unnest($1::text[])`, names)
			found, err := kiroku.Inspect(t.Context(), tx)
			if err != nil || found.Origin != kiroku.OriginCodd || found.Through != 7 || len(found.Pending) != 4 {
				t.Errorf("%+v, %v", found, err)
			}
			// Old databases have a time of zeros in the names.
			exec(t, tx, `update `+schema+`.sql_migrations set name = overlay(name placing '00-00-00' from 12 for 8)`)
			if found, err := kiroku.Inspect(t.Context(), tx); err != nil || found.Through != 7 {
				t.Errorf("old names: %+v, %v", found, err)
			}
			exec(t, tx, `delete from `+schema+`.sql_migrations where name like '%-stream-name-length-check.sql'`)
			_, err = kiroku.Inspect(t.Context(), tx)
			refused := wantError[*kiroku.LedgerError](t, err)
			if refused.Migration != "stream-name-length-check.sql" || refused.Ledger != schema+".sql_migrations" {
				t.Errorf("%+v", refused)
			}
		})
	}
}

// The ledger of an application that has no kiroku does not stand in the way.
func TestMigrateInstallsBesideAForeignLedger(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, nil)
	exec(t, pool, `create schema pgmigrate`)
	exec(t, pool, pgmigrateTable)
	record(t, pool, "billing", "0001", 1, withdrawn, "applied")
	if err := kiroku.Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	if n := queryOne[int](t, pool, `select count(*) from pgmigrate.migrations`); n != 1 {
		t.Errorf("%d rows in the ledger, want the one of before", n)
	}
}

func TestAForeignSchemaKirokuIsRefused(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, nil)
	exec(t, pool, `create schema kiroku; create table kiroku.notes (id int primary key)`)
	err := kiroku.Migrate(t.Context(), pool)
	wantError[*kiroku.SchemaError](t, err)
	if errors.Is(err, kiroku.ErrInvalid) {
		t.Error("the database is at fault, not an argument")
	}
	if n := queryOne[int](t, pool, `select count(*) from pg_class where relnamespace = 'kiroku'::regnamespace and relkind = 'r'`); n != 1 {
		t.Errorf("%d tables, want the one of before", n)
	}
}
