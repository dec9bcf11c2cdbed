package kiroku_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/kiroku"
)

// holdTheLog locks what every append takes last, until release is called.
func holdTheLog(t *testing.T, pool *pgxpool.Pool) (release func()) {
	t.Helper()
	return lockRow(t, pool, "$all")
}

// lockRow locks a stream, as another transaction would.
func lockRow(t *testing.T, pool *pgxpool.Pool, stream string) (release func()) {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	exec(t, tx, `select from kiroku.streams where stream_name = $1 for update`, stream)
	release = sync.OnceFunc(func() {
		if err := tx.Rollback(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(release)
	return release
}

const waiters = `select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`

// inOneFlight makes the calls share a statement: all of them come while a
// statement before them is held up. It returns when all are back.
func inOneFlight(t *testing.T, pool *pgxpool.Pool, a *kiroku.Appender, calls ...func()) {
	t.Helper()
	release := holdTheLog(t, pool)
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := a.Append(t.Context(), to("before", kiroku.AnyVersion(), event(1))); err != nil {
			t.Error(err)
		}
	})
	eventually(t, func() bool { return queryOne[int](t, pool, waiters) > 0 })
	for _, call := range calls {
		wg.Go(call)
	}
	time.Sleep(30 * time.Millisecond) // shorter than the time after which they overtake
	release()
	wg.Wait()
}

func transactions(t *testing.T, pool *pgxpool.Pool) int {
	t.Helper()
	return queryOne[int](t, pool, `select count(distinct xmin::text) from kiroku.events`)
}

func TestAppendsAtOneTimeShareACommit(t *testing.T) {
	t.Parallel()
	pool := store(t)
	a := kiroku.NewAppender(pool)
	got := make([]kiroku.Appended, 20)
	calls := make([]func(), len(got))
	for i := range calls {
		calls[i] = func() {
			out, err := a.Append(t.Context(), to(fmt.Sprintf("s-%d", i%7), kiroku.AnyVersion(), events(1+i%3)...))
			if err != nil {
				t.Error(err)
				return
			}
			got[i] = out[0]
		}
	}
	inOneFlight(t, pool, a, calls...)
	if n := transactions(t, pool); n > 10 { // one before, one together, more where the machine is slow
		t.Errorf("%d transactions for %d appends", n, len(got)+1)
	}
	for i, g := range got {
		n := 1 + i%3
		keys, err := kiroku.ReadKeys(t.Context(), pool, g.Position-kiroku.Position(n), n)
		if err != nil {
			t.Fatal(err)
		}
		for j, k := range keys {
			if k.EventID != g.EventIDs[j] || k.StreamID != g.StreamID || k.Version != g.Version-int64(n-1-j) {
				t.Errorf("append %d: %+v in the log, result %+v", i, k, g)
			}
		}
	}
	wantDenseLog(t, pool)
	if len(calls) != 20 || queryOne[int](t, pool, `select count(*) from kiroku.events`) != 1+20+19 {
		t.Error("events are missing")
	}
}

// Each of these would fail by itself; none fails another.
func TestWhatFailsOneAppendHarmsNoOther(t *testing.T) {
	t.Parallel()
	pool := store(t)
	a := kiroku.NewAppender(pool)
	known := mustAppend(t, pool, "there", 2).EventIDs[0]
	mustAppend(t, pool, "deleted", 1)
	exec(t, pool, `update kiroku.streams set deleted_at = now() where stream_name = 'deleted'`)
	exec(t, pool, `alter table kiroku.events add constraint no_bad check (event_type <> 'Bad') not valid`)
	again := event(1)
	again.ID = known
	bad := event(1)
	bad.Type = "Bad"
	twin := event(1)
	twin.ID = newID()
	var mu sync.Mutex
	results := map[string]error{}
	call := func(name string, appends ...kiroku.StreamAppend) func() {
		return func() {
			_, err := a.Append(t.Context(), appends...)
			mu.Lock()
			defer mu.Unlock()
			results[name] = err
		}
	}
	inOneFlight(t, pool, a,
		call("conflict", to("there", kiroku.ExactVersion(7), event(1)), to("untouched", kiroku.AnyVersion(), event(1))),
		call("exists", to("there", kiroku.NoStream(), event(1))),
		call("missing", to("missing", kiroku.StreamExists(), event(1))),
		call("deleted", to("deleted", kiroku.AnyVersion(), event(1))),
		call("duplicate", to("x", kiroku.AnyVersion(), event(1), again)),
		call("refused", to("y", kiroku.AnyVersion(), bad)),
		call("twin 1", to("z", kiroku.AnyVersion(), twin)),
		call("twin 2", to("z", kiroku.AnyVersion(), twin)),
		call("invalid", to("$all", kiroku.AnyVersion(), event(1))),
		call("ok 1", to("there", kiroku.AnyVersion(), event(1))),
		call("ok 2", to("new", kiroku.NoStream(), event(1))),
		call("ok 3", to("there", kiroku.StreamExists(), event(1)), to("x", kiroku.AnyVersion(), event(1))),
	)
	wantError[*kiroku.VersionConflictError](t, results["conflict"])
	wantError[*kiroku.StreamExistsError](t, results["exists"])
	wantError[*kiroku.StreamNotFoundError](t, results["missing"])
	if err := wantError[*kiroku.StreamNotFoundError](t, results["deleted"]); !err.Deleted || err.Actual != 1 {
		t.Errorf("%+v", err)
	}
	if err := wantError[*kiroku.DuplicateEventError](t, results["duplicate"]); err.EventID != known {
		t.Errorf("%+v", err)
	}
	wantError[*pgconn.PgError](t, results["duplicate"])
	wantError[*kiroku.SchemaError](t, results["refused"])
	if (results["twin 1"] == nil) == (results["twin 2"] == nil) {
		t.Errorf("twins: %v and %v, want one to win", results["twin 1"], results["twin 2"])
	}
	wantError[*kiroku.DuplicateEventError](t, errors.Join(results["twin 1"], results["twin 2"]))
	wantError[*kiroku.ReservedStreamError](t, results["invalid"])
	for _, name := range []string{"ok 1", "ok 2", "ok 3"} {
		if results[name] != nil {
			t.Errorf("%s: %v", name, results[name])
		}
	}
	wantDenseLog(t, pool)
	if names := queryOne[[]string](t, pool, `select array_agg(stream_name order by stream_name collate "C") from kiroku.streams where stream_id > 0`); !slices.Equal(names, []string{"before", "deleted", "new", "there", "x", "z"}) {
		t.Errorf("streams %v", names)
	}
}

// A stream that somebody keeps locked keeps nobody else waiting.
func TestALockedStreamHoldsUpItsOwnAppendsOnly(t *testing.T) {
	t.Parallel()
	pool := store(t)
	a := kiroku.NewAppender(pool)
	mustAppend(t, pool, "locked", 1)
	release := lockRow(t, pool, "locked")
	var held sync.WaitGroup
	var others []func()
	for i := range 10 {
		others = append(others, func() {
			if _, err := a.Append(t.Context(), to(fmt.Sprintf("free-%d", i), kiroku.AnyVersion(), event(1))); err != nil {
				t.Error(err)
			}
		})
	}
	for range 5 {
		held.Add(1)
		others = append(others, func() {
			go func() {
				defer held.Done()
				if _, err := a.Append(t.Context(), to("locked", kiroku.AnyVersion(), event(1))); err != nil {
					t.Error(err)
				}
			}()
		})
	}
	inOneFlight(t, pool, a, others...) // returns, though five are held
	if _, err := a.Append(t.Context(), to("free-0", kiroku.ExactVersion(1), event(1))); err != nil {
		t.Error(err)
	}
	eventually(t, func() bool { return queryOne[int](t, pool, waiters) == 1 })
	release()
	held.Wait()
	if v := queryOne[int64](t, pool, `select stream_version from kiroku.streams where stream_name = 'locked'`); v != 6 {
		t.Errorf("version %d, want 6", v)
	}
	wantDenseLog(t, pool)
}

// Also where the append that waits was under way before the others came.
func TestALoneAppendToALockedStreamIsOvertaken(t *testing.T) {
	t.Parallel()
	pool := store(t)
	a := kiroku.NewAppender(pool)
	mustAppend(t, pool, "locked", 1)
	release := lockRow(t, pool, "locked")
	var held sync.WaitGroup
	for range 3 {
		held.Go(func() {
			if _, err := a.Append(t.Context(), to("locked", kiroku.AnyVersion(), event(1))); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, func() bool { return queryOne[int](t, pool, waiters) > 0 })
	for i := range 20 {
		if _, err := a.Append(t.Context(), to("free", kiroku.AnyVersion(), event(i))); err != nil {
			t.Error(err)
		}
	}
	if n := queryOne[int](t, pool, waiters); n > 2 {
		t.Errorf("%d connections wait for one stream", n)
	}
	release()
	held.Wait()
	wantDenseLog(t, pool)
}

func TestOfManyAppendsAtOneVersionOneWinsAndAllLearnTheVersion(t *testing.T) {
	t.Parallel()
	pool := store(t)
	a := kiroku.NewAppender(pool)
	mustAppend(t, pool, "race", 1)
	var mu sync.Mutex
	var lost []error
	calls := slices.Repeat([]func(){func() {
		if _, err := a.Append(t.Context(), to("race", kiroku.ExactVersion(1), events(2)...)); err != nil {
			mu.Lock()
			defer mu.Unlock()
			lost = append(lost, err)
		}
	}}, 12)
	inOneFlight(t, pool, a, calls...)
	if len(lost) != 11 {
		t.Fatalf("%d lost: %v", len(lost), errors.Join(lost...))
	}
	for _, err := range lost {
		if c := wantError[*kiroku.VersionConflictError](t, err); c.Actual != 3 || c.Expected != kiroku.ExactVersion(1) {
			t.Errorf("%+v", c)
		}
	}
	wantDenseLog(t, pool)
}

func TestAStreamIsNotifiedOncePerStatement(t *testing.T) {
	t.Parallel()
	pool := store(t)
	notified := listen(t, pool)
	a := kiroku.NewAppender(pool)
	calls := slices.Repeat([]func(){func() {
		if _, err := a.Append(t.Context(), to("s-1", kiroku.AnyVersion(), event(1))); err != nil {
			t.Error(err)
		}
	}}, 5)
	inOneFlight(t, pool, a, calls...)
	got := notified()
	id := queryOne[int64](t, pool, `select stream_id from kiroku.streams where stream_name = 's-1'`)
	if last := got[len(got)-2]; last != fmt.Sprintf("s-1,%d,5", id) || len(got) > 5 {
		t.Errorf("notified %q", got)
	}
}
