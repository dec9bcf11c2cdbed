package kiroku_test

import (
	"context"
	"errors"
	"maps"
	"testing"

	"github.com/suisha-go/suisha/kiroku"
)

func checkpoints(tb testing.TB, db kiroku.DB, subscription string) map[int]kiroku.Position {
	tb.Helper()
	out, err := kiroku.LoadCheckpoints(tb.Context(), db, subscription)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

func save(tb testing.TB, db kiroku.DB, subscription string, member int, p kiroku.Position) {
	tb.Helper()
	if err := kiroku.SaveCheckpoint(tb.Context(), db, subscription, member, p); err != nil {
		tb.Fatal(err)
	}
}

// S-4B, and kiroku.md 13: 19-22.
func TestCheckpointsOfMembersOnlyMoveForwardAndApart(t *testing.T) {
	t.Parallel()
	pool := store(t)
	save(t, pool, "s", 0, 20)
	save(t, pool, "s", 1, 7)
	save(t, pool, "s", 0, 5)
	save(t, pool, "other", 0, 1)
	if got := checkpoints(t, pool, "s"); !maps.Equal(got, map[int]kiroku.Position{0: 20, 1: 7}) {
		t.Errorf("%v", got)
	}
	save(t, pool, "s", 1, 8)
	if got := checkpoints(t, pool, "s"); got[1] != 8 {
		t.Errorf("%v", got)
	}
	if got := checkpoints(t, pool, "nobody"); len(got) != 0 {
		t.Errorf("%v", got)
	}
	if err := kiroku.SaveCheckpoint(t.Context(), pool, "s", -1, 1); !errors.Is(err, kiroku.ErrInvalid) {
		t.Errorf("member -1: %v", err)
	}
	if n := queryOne[int](t, pool, `select count(*) from kiroku.subscriptions where stream_name <> '$all' or consumer_group_size <> 1`); n != 0 {
		t.Errorf("%d rows with a legacy column written", n)
	}
}

// P-3, L-26, and kiroku.md 13: 63-68.
func TestSeedCreatesWhatIsMissingWhereTheStartSays(t *testing.T) {
	t.Parallel()
	pool := store(t)
	mustAppend(t, pool, "a-1", 9)
	type places = map[int]kiroku.Position
	for _, c := range []struct {
		name     string
		existing places
		members  int
		start    kiroku.Start
		want     places
	}{
		{"from the beginning", nil, 3, kiroku.FromBeginning(), places{0: 0, 1: 0, 2: 0}},
		{"from the head", nil, 3, kiroku.FromHead(), places{0: 9, 1: 9, 2: 9}},
		{"from a position", nil, 2, kiroku.FromPosition(4), places{0: 4, 1: 4}},
		{"existing rows win", places{0: 3, 1: 50}, 2, kiroku.FromHead(), places{0: 3, 1: 50}},
		{"a member without a row begins at 0 once there is one", places{1: 6}, 3, kiroku.FromHead(), places{0: 0, 1: 6, 2: 0}},
		{"also when the one is not of this group", places{5: 6}, 2, kiroku.FromHead(), places{0: 0, 1: 0}},
		{"from a position beside existing rows", places{1: 6}, 2, kiroku.FromPosition(4), places{0: 4, 1: 6}},
		{"must exist, and does", places{0: 2, 1: 3}, 2, kiroku.MustExist(), places{0: 2, 1: 3}},
	} {
		exec(t, pool, `delete from kiroku.subscriptions`)
		for member, p := range c.existing {
			save(t, pool, "s", member, p)
		}
		save(t, pool, "another", 0, 77)
		got, err := kiroku.SeedCheckpoints(t.Context(), pool, "s", c.members, c.start)
		if err != nil || !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, %v, want %v", c.name, got, err, c.want)
		}
		stored := checkpoints(t, pool, "s")
		for member, p := range c.want {
			if stored[member] != p {
				t.Errorf("%s: stored %v, want %v", c.name, stored, c.want)
			}
		}
	}
}

func TestSeedThatMustExistWritesNothing(t *testing.T) {
	t.Parallel()
	pool := store(t)
	save(t, pool, "s", 1, 5)
	_, err := kiroku.SeedCheckpoints(t.Context(), pool, "s", 3, kiroku.MustExist())
	missing := wantError[*kiroku.CheckpointMissingError](t, err)
	if missing.Subscription != "s" || len(missing.Members) != 2 || missing.Members[0] != 0 || missing.Members[1] != 2 {
		t.Errorf("%+v", missing)
	}
	if got := checkpoints(t, pool, "s"); len(got) != 1 {
		t.Errorf("stored %v", got)
	}
	for _, err := range []error{
		func() error {
			_, err := kiroku.SeedCheckpoints(t.Context(), pool, "s", 0, kiroku.FromHead())
			return err
		}(),
		func() error {
			_, err := kiroku.SeedCheckpoints(t.Context(), pool, "s", 1, kiroku.FromPosition(-1))
			return err
		}(),
	} {
		if !errors.Is(err, kiroku.ErrInvalid) {
			t.Errorf("error %v", err)
		}
	}
}

// kiroku.md 13: 68, 69.
func TestConcurrentSeedsAgreeWhileOthersAppend(t *testing.T) {
	t.Parallel()
	pool := store(t)
	for range 10 {
		exec(t, pool, `delete from kiroku.subscriptions`)
		results := make([]map[int]kiroku.Position, 6)
		together(8, func(i int) {
			if i >= len(results) {
				mustAppend(t, pool, "a-1", 1)
				return
			}
			var err error
			if results[i], err = kiroku.SeedCheckpoints(t.Context(), pool, "s", 16, kiroku.FromHead()); err != nil {
				t.Error(err)
			}
		})
		for _, got := range results {
			if !maps.Equal(got, results[0]) || len(got) != 16 {
				t.Fatalf("%v and %v", got, results[0])
			}
			for _, p := range got {
				if p != got[0] {
					t.Fatalf("members begin apart: %v", got)
				}
			}
		}
	}
}

func TestStartsAreComparableAndSaySo(t *testing.T) {
	t.Parallel()
	if (kiroku.Start{}) != kiroku.FromBeginning() || kiroku.FromPosition(0) != kiroku.FromBeginning() || kiroku.FromHead() == kiroku.MustExist() {
		t.Error("comparison")
	}
	for start, want := range map[kiroku.Start]string{
		kiroku.FromBeginning(): "from the beginning", kiroku.FromHead(): "from the head",
		kiroku.FromPosition(7): "from position 7", kiroku.MustExist(): "from an existing checkpoint",
	} {
		if start.String() != want {
			t.Errorf("%q, want %q", start, want)
		}
	}
}

// kiroku.md 13: 70-74.
func TestResetMovesExistingCheckpointsBackAndCreatesNone(t *testing.T) {
	t.Parallel()
	pool := store(t)
	for member, p := range map[int]kiroku.Position{0: 10, 1: 20, 2: 3} {
		save(t, pool, "s", member, p)
	}
	save(t, pool, "r", 0, 4)
	save(t, pool, "kept", 0, 4)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	reset, missing, err := kiroku.ResetCheckpoints(t.Context(), tx, 5, "s", "gone", "r", "gone")
	if err != nil || len(missing) != 1 || missing[0] != "gone" || len(reset) != 4 {
		t.Fatalf("%+v, %v, %v", reset, missing, err)
	}
	for i, want := range []struct {
		name   string
		member int
	}{{"r", 0}, {"s", 0}, {"s", 1}, {"s", 2}} {
		if c := reset[i]; c.Subscription != want.name || c.Member != want.member || c.Position != 5 {
			t.Errorf("%d: %+v", i, c)
		}
	}
	if err := tx.Rollback(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	if got := checkpoints(t, pool, "s"); got[1] != 20 {
		t.Errorf("after a rollback: %v", got)
	}
	if _, _, err := kiroku.ResetCheckpoints(t.Context(), pool, 5, "s", "gone"); err != nil {
		t.Fatal(err)
	}
	save(t, pool, "s", 0, 4)
	save(t, pool, "s", 1, 6)
	if got := checkpoints(t, pool, "s"); !maps.Equal(got, map[int]kiroku.Position{0: 5, 1: 6, 2: 5}) {
		t.Errorf("after a reset: %v", got)
	}
	if got := checkpoints(t, pool, "gone"); len(got) != 0 {
		t.Errorf("a reset created %v", got)
	}
	if got := checkpoints(t, pool, "kept"); got[0] != 4 {
		t.Errorf("kept: %v", got)
	}
	if _, _, err := kiroku.ResetCheckpoints(t.Context(), pool, -1, "s"); !errors.Is(err, kiroku.ErrInvalid) {
		t.Errorf("position -1: %v", err)
	}
}

func TestInventoryListsEveryCheckpointBesideTheHead(t *testing.T) {
	t.Parallel()
	pool := store(t)
	head, all, err := kiroku.Inventory(t.Context(), pool)
	if err != nil || head != 0 || len(all) != 0 {
		t.Errorf("empty: %d, %v, %v", head, all, err)
	}
	mustAppend(t, pool, "a-1", 5)
	save(t, pool, "b", 1, 2)
	save(t, pool, "b", 0, 1)
	save(t, pool, "a", 0, 5)
	head, all, err = kiroku.Inventory(t.Context(), pool)
	if err != nil || head != 5 || len(all) != 3 {
		t.Fatalf("%d, %+v, %v", head, all, err)
	}
	for i, want := range []kiroku.Checkpoint{{Subscription: "a", Position: 5}, {Subscription: "b", Position: 1}, {Subscription: "b", Member: 1, Position: 2}} {
		got := all[i]
		if got.UpdatedAt.IsZero() {
			t.Errorf("%d has no time", i)
		}
		got.UpdatedAt = want.UpdatedAt
		if got != want {
			t.Errorf("%d: %+v, want %+v", i, got, want)
		}
	}
}
