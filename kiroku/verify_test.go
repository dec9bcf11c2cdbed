package kiroku_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/suisha-go/suisha/internal/pgtest"
	"github.com/suisha-go/suisha/kiroku"
)

// mutilations are schemas that are wrong in one thing, and what must be said.
var mutilations = []struct{ name, ddl, object, problem string }{
	{
		"missing column", `alter table kiroku.streams drop column truncate_before`,
		"column kiroku.streams.truncate_before", "is missing",
	},
	{
		"wrong type", `alter table kiroku.stream_events alter column original_stream_version type int`,
		"column kiroku.stream_events.original_stream_version", "is integer, not bigint",
	},
	{
		"nullable column", `alter table kiroku.events alter column event_type drop not null`,
		"column kiroku.events.event_type", "allows null",
	},
	{
		"column that demands a value", `alter table kiroku.events add column tenant text not null`,
		"column kiroku.events.tenant", "is unknown and demands a value",
	},
	{
		"missing default", `alter table kiroku.streams alter column stream_id drop default`,
		"column kiroku.streams.stream_id", "has no default",
	},
	{
		"category that is not generated", `alter table kiroku.streams alter column category drop expression`,
		"column kiroku.streams.category", "is not generated",
	},
	{
		"category of another expression",
		`alter table kiroku.streams drop column category;
			 alter table kiroku.streams add column category text generated always as (split_part(stream_name, '_', 1)) stored;
			 create index ix_streams_category on kiroku.streams (category)`,
		"column kiroku.streams.category",
		"is generated as split_part(stream_name, '_'::text, 1), not split_part(stream_name, '-'::text, 1)",
	},
	{
		"missing arbiter index", `drop index kiroku.ix_subscriptions_name_member`,
		"index kiroku.ix_subscriptions_name_member", "is missing",
	},
	{
		"arbiter that is not unique",
		`drop index kiroku.ix_subscriptions_name_member;
			 create index ix_subscriptions_name_member on kiroku.subscriptions (subscription_name, consumer_group_member)`,
		"index kiroku.ix_subscriptions_name_member", "is not unique",
	},
	{
		"missing unique key",
		`alter table kiroku.dead_letters drop constraint dead_letters_subscription_name_consumer_group_member_global_key`,
		"index kiroku.dead_letters_subscription_name_consumer_group_member_global_key", "is missing",
	},
	{
		"key of other columns",
		`drop index kiroku.ux_stream_events_stream_version;
			 create unique index ux_stream_events_stream_version on kiroku.stream_events (stream_version, stream_id)`,
		"index kiroku.ux_stream_events_stream_version", "is on [stream_version stream_id], not [stream_id stream_version]",
	},
	{
		"index without its condition",
		`drop index kiroku.ix_stream_events_all_by_origin;
			 create index ix_stream_events_all_by_origin on kiroku.stream_events (original_stream_id, stream_version)`,
		"index kiroku.ix_stream_events_all_by_origin", `has the condition "", not "(stream_id = 0)"`,
	},
	{
		"invalid index",
		`update pg_index set indisvalid = false where indexrelid = 'kiroku.ix_streams_category'::regclass`,
		"index kiroku.ix_streams_category", "is not valid",
	},
	{
		"missing check", `alter table kiroku.streams drop constraint chk_streams_stream_name_length`,
		"constraint chk_streams_stream_name_length on kiroku.streams", "is missing",
	},
	{
		"other check",
		`alter table kiroku.streams drop constraint chk_streams_stream_name_length;
			 alter table kiroku.streams add constraint chk_streams_stream_name_length check (octet_length(stream_name) <= 64)`,
		"constraint chk_streams_stream_name_length on kiroku.streams",
		"is CHECK ((octet_length(stream_name) <= 64)), not CHECK ((octet_length(stream_name) <= 512))",
	},
	{
		"missing foreign key", `alter table kiroku.dead_letters drop constraint dead_letters_event_id_fkey`,
		"constraint dead_letters_event_id_fkey on kiroku.dead_letters", "is missing",
	},
	{
		"missing trigger", `drop trigger stream_events_notify_insert on kiroku.streams`,
		"trigger stream_events_notify_insert on kiroku.streams", "is missing",
	},
	{
		"disabled trigger", `alter table kiroku.streams disable trigger stream_events_notify_update`,
		"trigger stream_events_notify_update on kiroku.streams", "is disabled",
	},
	{
		"trigger bound to another function",
		`create function kiroku.silent() returns trigger language plpgsql as 'begin return null; end';
			 drop trigger stream_events_notify_update on kiroku.streams;
			 create trigger stream_events_notify_update after update on kiroku.streams for each row execute function kiroku.silent()`,
		"trigger stream_events_notify_update on kiroku.streams", "runs kiroku.silent, not kiroku.notify_events",
	},
	{
		"trigger on another event",
		`drop trigger stream_events_notify_update on kiroku.streams;
			 create trigger stream_events_notify_update after insert on kiroku.streams
			 for each row execute function kiroku.notify_events()`,
		"trigger stream_events_notify_update on kiroku.streams", "fires on other events",
	},
	{
		"missing row of the log",
		`set local kiroku.enable_hard_deletes = 'on'; delete from kiroku.streams where stream_id = 0`,
		"row 0 of kiroku.streams", "is missing",
	},
	{
		"row of the log under another name", `update kiroku.streams set stream_name = 'all' where stream_id = 0`,
		"row 0 of kiroku.streams", `is named "all"`,
	},
	{"missing table", `drop table kiroku.dead_letters`, "table kiroku.dead_letters", "is missing"},
	{"missing schema", `drop schema kiroku cascade`, "schema kiroku", "is missing or empty"},
}

// Each mutilation is made in a transaction of its own, so one database serves all.
func TestVerifyNamesWhatIsWrong(t *testing.T) { //nolint:tparallel // the mutilations lock the same tables, each in a transaction
	t.Parallel()
	pool := store(t)
	for _, c := range mutilations {
		t.Run(c.name, func(t *testing.T) {
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
			exec(t, tx, c.ddl)
			err = kiroku.Verify(t.Context(), tx)
			first := wantError[*kiroku.SchemaError](t, err)
			if first.Object != c.object || first.Problem != c.problem || first.Cure == "" {
				t.Errorf("%+v", first)
			}
			// A column that went took with it what rested on it; nothing else may
			// be said to be wrong.
			if joined, ok := err.(interface{ Unwrap() []error }); ok && len(joined.Unwrap()) > 1 && c.name != "missing table" {
				t.Errorf("more than one problem: %v", err)
			}
		})
	}
	if err := kiroku.Verify(t.Context(), pool); err != nil {
		t.Errorf("after all: %v", err)
	}
}

func TestVerifyReportsAllProblemsAtOnce(t *testing.T) {
	t.Parallel()
	pool := store(t)
	exec(t, pool, `
		alter table kiroku.streams drop column deleted_at;
		drop trigger no_update_events on kiroku.events;
		drop index kiroku.ix_streams_category`)
	check := unchanged(t, pool)
	err := kiroku.Migrate(t.Context(), pool)
	for _, want := range []string{"streams.deleted_at", "no_update_events", "ix_streams_category"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not named in: %v", want, err)
		}
	}
	check()
}

func TestVerifyAsksForNothingThatOnlyOthersUse(t *testing.T) {
	t.Parallel()
	pool := store(t)
	exec(t, pool, `
		drop view kiroku.subscription_checkpoints_v1;
		drop function kiroku.protect_replay_history_from_destruction cascade;
		drop table kiroku.history_retention_leases, kiroku.history_retention_coordinator;
		alter table kiroku.subscriptions drop column stream_name;
		alter table kiroku.events add column note text;
		create index on kiroku.events (event_type)`)
	if err := kiroku.Verify(t.Context(), pool); err != nil {
		t.Error(err)
	}
}

func TestStatementsOnADatabaseWithoutAStoreSayWhatToDo(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, nil)
	for name, call := range map[string]func() error{
		"Append": func() error {
			_, err := kiroku.Append(t.Context(), pool, to("a-1", kiroku.AnyVersion(), event(1)))
			return err
		},
		"ReadAll": func() error { _, err := kiroku.ReadAll(t.Context(), pool, 0, 1); return err },
		"Head":    func() error { _, err := kiroku.Head(t.Context(), pool); return err },
		"SeedCheckpoints": func() error {
			_, err := kiroku.SeedCheckpoints(t.Context(), pool, "s", 1, kiroku.FromHead())
			return err
		},
	} {
		var schema *kiroku.SchemaError
		if err := call(); !errors.As(err, &schema) || schema.Cure == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
