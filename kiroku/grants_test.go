package kiroku_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/suisha-go/suisha/kiroku"
)

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
