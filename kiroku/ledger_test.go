package kiroku_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/internal/pgtest"
	"github.com/suisha-go/suisha/kiroku"
)

const pgmigrateTable = `create table pgmigrate.migrations (
	component text not null,
	migration text not null,
	position int not null check (position > 0),
	checksum bytea not null check (octet_length(checksum) = 32),
	kind text not null default 'sql',
	transaction_mode text not null default 'transactional',
	status text not null,
	started_at timestamptz not null default now(),
	finished_at timestamptz,
	execution_time_ms bigint,
	error text,
	runner_version text not null default '1.1.0.0',
	primary key (component, migration),
	unique (component, position)
)`

// official are kiroku's migrations as its tool records them.
var official = []struct{ name, checksum string }{
	{"0001-kiroku-bootstrap", "af7c777f8702d9b5bce6b3ea16540ab7542bc78725cb45e945c6d5b6025a4d66"},
	{"0002-add-subscription-dead-letters", "2771cdd2605a8808ea469c0bcba175c8ba4c5d2465f43eb05c56edb188fa8141"},
	{"0003-notify-trigger-append-guard", "432796c59389d45478ba773b62e9f38d0a562807061eb49280d295ec83248351"},
	{"0004-dead-letters-event-id-index", "f698db092ebf34beeddecc949bbd506afc0b9c63d3e9983ad5d14f203f2ee1cd"},
	{"0005-index-hygiene-and-streams-fillfactor", "80c28c7743f1d9967eadf921c0509fc8477db16500466bf7a49c5f59aadb0fa2"},
	{"0006-stream-name-length-check", "a0e4338a2feadf8f01499a3809d3de78966966689b095ea46195c4d07743e4aa"},
	{"0007-stream-truncate-before", "a4fe42ad8702b43c3d6f72edf263d6b301e783493d49f40a35dd14d2a7928fa7"},
	{"0008-schema-management-comment", "3fb3dd5a7172da3cd14edecb0877cc9963fc9a6dceaff9ed41705a2365070f70"},
	{"0009", "62c80d627dc8f17393d26ff7dbc00cabde11ed38ee7bf3cb1ae42ea89f484c74"},
	{"0010", "debc19187d79cd263be66c6c85cd789c1176e508d562a27390095aaa70f650c4"},
	{"0011", "bf8b76a712a31cb602aee793a11691283ccd1eafdc16224e45e14484512b5af7"},
}

const withdrawn = "257d94b8ea24156af0ee477196c5a6682cf5616cf8dfd0cfc527a49b5e7a97ac"

// haskell makes a store as kiroku's own tool leaves it: the schema, its ledger
// up to a migration, and no word of ours.
func haskell(ctx context.Context, pool *pgxpool.Pool) error {
	if err := kiroku.Migrate(ctx, pool); err != nil {
		return err
	}
	for _, sql := range []string{`drop schema suisha cascade`, `create schema pgmigrate`, pgmigrateTable} {
		if _, err := pool.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

func record(tb testing.TB, db kiroku.DB, component, name string, position int, checksum, status string) {
	tb.Helper()
	sum, err := hex.DecodeString(checksum)
	if err != nil {
		tb.Fatal(err)
	}
	exec(tb, db, `insert into pgmigrate.migrations (component, migration, position, checksum, status) values ($1, $2, $3, $4, $5)`,
		component, name, position, sum, status)
}

// ledgerCase is a ledger, and what must be said of it.
type ledgerCase struct {
	name    string
	rows    func(*testing.T, kiroku.DB)
	want    kiroku.Installation
	refused string // the migration that the error names
	problem string
}

func ledgers() []ledgerCase {
	through := func(last int) func(*testing.T, kiroku.DB) {
		return func(t *testing.T, db kiroku.DB) {
			for i, m := range official[:last] {
				record(t, db, "kiroku", m.name, i+1, m.checksum, "applied")
			}
		}
	}
	but := func(last int, change string) func(*testing.T, kiroku.DB) {
		return func(t *testing.T, db kiroku.DB) {
			through(last)(t, db)
			exec(t, db, change)
		}
	}
	return []ledgerCase{
		{name: "all", rows: through(11), want: kiroku.Installation{Origin: kiroku.OriginPgMigrate, Through: 11}},
		{
			name: "the least", rows: through(7),
			want: kiroku.Installation{
				Origin: kiroku.OriginPgMigrate, Through: 7,
				Pending: []string{"0008-schema-management-comment", "0009", "0010", "0011"},
			},
		},
		{name: "too few", rows: through(6), refused: "0007-stream-truncate-before", problem: "is not applied"},
		{
			name: "gap", rows: but(11, `delete from pgmigrate.migrations where position = 5`),
			refused: "0005-index-hygiene-and-streams-fillfactor", problem: `is missing before "0006-stream-name-length-check"`,
		},
		{
			name: "gap behind the least", rows: but(11, `delete from pgmigrate.migrations where position = 9`),
			refused: "0009", problem: `is missing before "0010"`,
		},
		{
			name: "unknown checksum", rows: but(11, `update pgmigrate.migrations set checksum = sha256('other') where position = 3`),
			refused: "0003-notify-trigger-append-guard",
			problem: "has the unknown checksum d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa",
		},
		{
			name: "unknown name", rows: but(11, `update pgmigrate.migrations set migration = '0004-other' where position = 4`),
			refused: "0004-other", problem: `at position 4 is unknown, "0004-dead-letters-event-id-index" belongs there`,
		},
		{
			name: "withdrawn 0010", rows: but(11, fmt.Sprintf(`update pgmigrate.migrations set checksum = '\x%s' where position = 10`, withdrawn)),
			want: kiroku.Installation{Origin: kiroku.OriginPgMigrate, Through: 11, Withdrawn: true},
		},
		{
			name: "withdrawn 0010 before 0011", rows: but(10, fmt.Sprintf(`update pgmigrate.migrations set checksum = '\x%s' where position = 10`, withdrawn)),
			want: kiroku.Installation{Origin: kiroku.OriginPgMigrate, Through: 10, Withdrawn: true, Pending: []string{"0011"}},
		},
		{
			name: "running", rows: but(8, `update pgmigrate.migrations set status = 'running' where position = 8`),
			refused: "0008-schema-management-comment", problem: "is running",
		},
		{
			name: "failed", rows: but(11, `update pgmigrate.migrations set status = 'failed' where position = 11`),
			refused: "0011", problem: "is failed",
		},
		{
			name: "newer", rows: func(t *testing.T, db kiroku.DB) {
				through(11)(t, db)
				record(t, db, "kiroku", "0012", 12, withdrawn, "applied")
			},
			want: kiroku.Installation{Origin: kiroku.OriginPgMigrate, Through: 11, Newer: []string{"0012"}},
		},
		{
			name: "newer behind a gap", rows: func(t *testing.T, db kiroku.DB) {
				through(9)(t, db)
				record(t, db, "kiroku", "0012", 12, withdrawn, "applied")
			},
			refused: "0010", problem: "is not applied",
		},
		{
			name: "another component's rows only", rows: func(t *testing.T, db kiroku.DB) {
				record(t, db, "billing", "0001", 1, withdrawn, "failed")
			},
			want: kiroku.Installation{Origin: kiroku.OriginUnknown},
		},
	}
}

func TestMigrateJudgesTheLedgerOfKirokusTool(t *testing.T) { //nolint:tparallel // the cases write the same rows, each in a transaction
	t.Parallel()
	pool := pgtest.New(t, haskell)
	for _, c := range ledgers() {
		t.Run(c.name, func(t *testing.T) {
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
			c.rows(t, tx)
			found, err := kiroku.Inspect(t.Context(), tx)
			if c.refused == "" {
				if err != nil || fmt.Sprint(found) != fmt.Sprint(c.want) {
					t.Errorf("found %+v, %v\nwant  %+v", found, err, c.want)
				}
				return
			}
			refused := wantError[*kiroku.LedgerError](t, err)
			if refused.Migration != c.refused || refused.Problem != c.problem || refused.Ledger != "pgmigrate.migrations" || refused.Cure == "" {
				t.Errorf("%+v", refused)
			}
		})
	}
}

func TestMigrateChangesNothingInASchemaOfKirokusTool(t *testing.T) {
	t.Parallel()
	for _, last := range []int{7, 11} {
		t.Run(official[last-1].name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.New(t, haskell)
			for i, m := range official[:last] {
				record(t, pool, "kiroku", m.name, i+1, m.checksum, "applied")
			}
			if last == 7 {
				exec(t, pool, `drop view kiroku.subscription_checkpoints_v1`)
				exec(t, pool, `drop function kiroku.protect_replay_history_from_destruction cascade`)
				exec(t, pool, `drop table kiroku.history_retention_leases, kiroku.history_retention_coordinator`)
			}
			check := unchanged(t, pool)
			if err := kiroku.Migrate(t.Context(), pool); err != nil {
				t.Fatal(err)
			}
			check()
			mustAppend(t, pool, "a-1", 1)
		})
	}
}

func TestMigrateRefusesASchemaThatItsLedgerForbids(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, haskell)
	record(t, pool, "kiroku", official[0].name, 1, official[0].checksum, "running")
	refused := wantError[*kiroku.LedgerError](t, kiroku.Migrate(t.Context(), pool))
	if refused.Migration != official[0].name {
		t.Errorf("%+v", refused)
	}
}

// A ledger that says that everything is applied does not replace a look.
func TestMigrateVerifiesWhatTheLedgerPromises(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, haskell)
	for i, m := range official {
		record(t, pool, "kiroku", m.name, i+1, m.checksum, "applied")
	}
	exec(t, pool, `alter table kiroku.streams drop column truncate_before`)
	refused := wantError[*kiroku.SchemaError](t, kiroku.Migrate(t.Context(), pool))
	if refused.Object != "column kiroku.streams.truncate_before" {
		t.Errorf("%+v", refused)
	}
	exec(t, pool, `drop schema kiroku cascade`)
	refused = wantError[*kiroku.SchemaError](t, kiroku.Migrate(t.Context(), pool))
	if refused.Object != "schema kiroku" {
		t.Errorf("%+v", refused)
	}
}
