package migrate_test

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/internal/migrate"
	"github.com/suisha-go/suisha/internal/pgtest"
)

func apply(t testing.TB, pool *pgxpool.Pool, steps []migrate.Step) ([]int, error) {
	t.Helper()
	var versions []int
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		var err error
		versions, err = migrate.Apply(t.Context(), tx, "test", steps)
		return err
	})
	return versions, err
}

func steps() []migrate.Step {
	return []migrate.Step{
		{Version: 1, Name: "one", SQL: "create table suisha.a (id int); create table suisha.b (id int)"},
		{Version: 2, Name: "two", SQL: "alter table suisha.a add column n int"},
	}
}

func TestApplyRunsWhatIsPendingOnce(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, nil)
	for i, want := range [][]int{{1}, nil, {2}, nil} {
		got, err := apply(t, pool, steps()[:1+i/2])
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("call %d applied %v, want %v, %v", i, got, want, err)
		}
	}
	// An older program beside a newer schema is left alone.
	if got, err := apply(t, pool, steps()[:1]); err != nil || len(got) != 0 {
		t.Errorf("older program: %v, %v", got, err)
	}
}

func TestApplyRefusesDriftAndGaps(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, nil)
	if _, err := apply(t, pool, steps()); err != nil {
		t.Fatal(err)
	}
	changed := steps()
	changed[0].SQL += " "
	var drift *migrate.DriftError
	if _, err := apply(t, pool, changed); !errors.As(err, &drift) || drift.Version != 1 {
		t.Errorf("drift: %v", err)
	}
	if _, err := pool.Exec(t.Context(), `delete from suisha.migrations where version = 1`); err != nil {
		t.Fatal(err)
	}
	var gap *migrate.GapError
	if _, err := apply(t, pool, steps()); !errors.As(err, &gap) || gap.Version != 1 {
		t.Errorf("gap: %v", err)
	}
}

func TestFailingStepLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, nil)
	broken := append(steps(), migrate.Step{Version: 3, Name: "broken", SQL: "create table suisha.c (id int); select 1/0"})
	if _, err := apply(t, pool, broken); err == nil {
		t.Fatal("no error")
	}
	var there bool
	err := pool.QueryRow(context.WithoutCancel(t.Context()), `select to_regnamespace('suisha') is not null`).Scan(&there)
	if err != nil || there {
		t.Errorf("schema there: %v, %v", there, err)
	}
}

func TestReadWantsNumberedFiles(t *testing.T) {
	t.Parallel()
	file := func(names ...string) fs.FS {
		out := fstest.MapFS{}
		for _, n := range names {
			out["m/"+n] = &fstest.MapFile{Data: []byte("select 1")}
		}
		return out
	}
	got, err := migrate.Read(file("0001_first.sql", "0002_second_one.sql"), "m")
	if err != nil || len(got) != 2 || got[1].Name != "second_one" || got[1].Version != 2 || got[1].SQL != "select 1" {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, names := range [][]string{{"0002_x.sql"}, {"0001_x.sql", "0003_y.sql"}, {"1_x.sql"}, {"0001_X.sql"}, {"readme.md"}} {
		if _, err := migrate.Read(file(names...), "m"); err == nil {
			t.Errorf("%v passes", names)
		}
	}
	if _, err := migrate.Read(fstest.MapFS{}, "nowhere"); err == nil {
		t.Error("no directory passes")
	}
}
