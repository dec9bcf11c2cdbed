package kiroku_test

import (
	"maps"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/internal/pgtest"
	"github.com/suisha-go/suisha/kiroku"
)

// Behind a transaction pooler people choose a mode without prepared statements.
func TestEveryStatementWorksInEveryQueryModeOfPgx(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			cfg, err := pgxpool.ParseConfig(pgtest.DSN(pgtest.New(t, nil)))
			if err != nil {
				t.Fatal(err)
			}
			cfg.ConnConfig.DefaultQueryExecMode = mode
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			for range 2 { // the second time with what is cached by then
				useEverything(t, pool)
			}
		})
	}
}

func useEverything(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(kiroku.Migrate(ctx, pool))
	must(kiroku.CheckGrants(ctx, pool, true))
	head, err := kiroku.Head(ctx, pool)
	must(err)
	linked := kiroku.Event{
		Type: "Täst", Data: []byte(`{"a": "\\ 'quoted' {1,2} NULL"}`), Metadata: []byte(`[null]`),
		CausationID: uuid.NullUUID{UUID: newID(), Valid: true}, CorrelationID: uuid.NullUUID{UUID: newID(), Valid: true},
	}
	appended, err := kiroku.Append(ctx, pool,
		to("b-1", kiroku.AnyVersion(), linked, event(2)), to(`a-{",'\}`, kiroku.AnyVersion(), event(3)))
	must(err)
	keys, err := kiroku.ReadKeys(ctx, pool, head, 10)
	must(err)
	events, err := kiroku.ReadEvents(ctx, pool, []uuid.UUID{keys[0].EventID})
	must(err)
	got := events[0]
	if len(keys) != 3 || string(got.Data) != string(linked.Data) || string(got.Metadata) != string(linked.Metadata) ||
		got.Type != linked.Type || got.CausationID != linked.CausationID || got.CorrelationID != linked.CorrelationID || got.RecordedAt.IsZero() {
		t.Errorf("%d keys, %+v", len(keys), got)
	}
	_, err = kiroku.Append(ctx, pool, to("b-1", kiroku.ExactVersion(appended[0].Version+1), event(4)))
	wantError[*kiroku.VersionConflictError](t, err)
	streams, err := kiroku.LookupStreams(ctx, pool, []int64{appended[0].StreamID, appended[1].StreamID})
	must(err)
	if at, err := kiroku.KeysAt(ctx, pool, []kiroku.Position{head + 1}); len(at) != 1 || err != nil || len(streams) != 2 {
		t.Errorf("KeysAt: %v, %v; %d streams", at, err, len(streams))
	}
	for name, read := range map[string]func() ([]kiroku.RecordedEvent, error){
		"stream":            func() ([]kiroku.RecordedEvent, error) { return kiroku.ReadStream(ctx, pool, "b-1", 0, 2) },
		"stream backward":   func() ([]kiroku.RecordedEvent, error) { return kiroku.ReadStreamBackward(ctx, pool, "b-1", 0, 2) },
		"category":          func() ([]kiroku.RecordedEvent, error) { return kiroku.ReadCategory(ctx, pool, "b", 0, 2) },
		"category backward": func() ([]kiroku.RecordedEvent, error) { return kiroku.ReadCategoryBackward(ctx, pool, "b", 0, 2) },
		"all":               func() ([]kiroku.RecordedEvent, error) { return kiroku.ReadAll(ctx, pool, 0, 2) },
		"all backward":      func() ([]kiroku.RecordedEvent, error) { return kiroku.ReadAllBackward(ctx, pool, 0, 2) },
	} {
		if events, err := read(); err != nil || len(events) != 2 {
			t.Errorf("%s: %d events, %v", name, len(events), err)
		}
	}
	useSubscription(t, pool, appended[0])
}

func useSubscription(t *testing.T, pool *pgxpool.Pool, appended kiroku.Appended) {
	t.Helper()
	ctx := t.Context()
	name := "s-" + newID().String()
	for _, start := range []kiroku.Start{kiroku.FromHead(), kiroku.FromPosition(3), kiroku.MustExist()} {
		if got, err := kiroku.SeedCheckpoints(ctx, pool, name, 2, start); err != nil || len(got) != 2 {
			t.Fatalf("seed %v: %v, %v", start, got, err)
		}
	}
	if _, _, err := kiroku.ResetCheckpoints(ctx, pool, 0, name); err != nil {
		t.Error(err)
	}
	save(t, pool, name, 0, 1)
	letter := deadLetter(name, 1, appended.Position, appended.EventIDs[1])
	if recorded, err := kiroku.RecordDeadLetter(ctx, pool, letter, appended.Position); err != nil || !recorded {
		t.Errorf("dead letter: %v, %v", recorded, err)
	}
	if got := checkpoints(t, pool, name); !maps.Equal(got, map[int]kiroku.Position{0: 1, 1: appended.Position}) {
		t.Errorf("checkpoints %v", got)
	}
	if _, all, err := kiroku.Inventory(ctx, pool); err != nil || len(all) < 2 {
		t.Errorf("inventory: %v, %v", all, err)
	}
	member := 1
	for _, filter := range []kiroku.DeadLetterFilter{
		{Subscription: name},
		{Subscription: name, Member: &member, EventID: uuid.NullUUID{UUID: letter.EventID, Valid: true}, Limit: 1},
	} {
		letters, _, err := kiroku.ListDeadLetters(ctx, pool, filter)
		if err != nil || len(letters) != 1 || letters[0].EventID != letter.EventID {
			t.Fatalf("%+v: %+v, %v", filter, letters, err)
		}
		if one, err := kiroku.GetDeadLetter(ctx, pool, letters[0].ID); err != nil || one.Position != letter.Position {
			t.Errorf("%+v, %v", one, err)
		}
	}
}
