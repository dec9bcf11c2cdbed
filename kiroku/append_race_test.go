package kiroku_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/kiroku"
)

// together runs f n times at once.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
}

func TestOfTwoAppendsAtOneVersionOneWinsAndTheOtherLearnsTheVersion(t *testing.T) {
	t.Parallel()
	pool := store(t)
	for round := range 30 {
		stream := fmt.Sprintf("race-%d", round)
		mustAppend(t, pool, stream, 1)
		errs := make([]error, 2)
		together(2, func(i int) {
			_, errs[i] = kiroku.Append(t.Context(), pool, to(stream, kiroku.ExactVersion(1), events(2)...))
		})
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Fatalf("round %d: %v and %v, want one to win", round, errs[0], errs[1])
		}
		lost := wantError[*kiroku.VersionConflictError](t, errors.Join(errs...))
		if lost.Actual != 3 || lost.Stream != stream || lost.Expected != kiroku.ExactVersion(1) {
			t.Fatalf("round %d: %+v", round, lost)
		}
	}
	wantDenseLog(t, pool)
}

func TestConcurrentCreatorsOfOneStreamAllGetThrough(t *testing.T) {
	t.Parallel()
	pool := store(t)
	const writers = 8
	for round := range 20 {
		stream := fmt.Sprintf("fresh-%d", round)
		together(writers, func(int) {
			if _, err := kiroku.Append(t.Context(), pool, to(stream, kiroku.AnyVersion(), event(1))); err != nil {
				t.Errorf("round %d: %v", round, err)
			}
		})
		read, err := kiroku.ReadStream(t.Context(), pool, stream, 0, 100)
		if err != nil || len(read) != writers {
			t.Fatalf("round %d: %d events, %v", round, len(read), err)
		}
	}
	wantDenseLog(t, pool)
}

func TestOfConcurrentCreatorsWithNoStreamOneWinsAndTheOthersLearnTheVersion(t *testing.T) {
	t.Parallel()
	pool := store(t)
	const writers = 4
	for round := range 20 {
		stream := fmt.Sprintf("fresh-%d", round)
		errs := make([]error, writers)
		together(writers, func(i int) {
			_, errs[i] = kiroku.Append(t.Context(), pool, to(stream, kiroku.NoStream(), events(3)...))
		})
		losers := slices.DeleteFunc(errs, func(err error) bool { return err == nil })
		if len(losers) != writers-1 {
			t.Fatalf("round %d: %d losers of %d: %v", round, len(losers), writers, errors.Join(losers...))
		}
		for _, err := range losers {
			if lost := wantError[*kiroku.StreamExistsError](t, err); lost.Actual != 3 {
				t.Fatalf("round %d: %+v", round, lost)
			}
		}
	}
}

// Upstream's IR-7: an append to several streams deadlocks with one that creates
// one of them. Here everybody takes its locks in one order.
func TestAppendsToManyStreamsInAnyOrderNeverDeadlock(t *testing.T) {
	t.Parallel()
	pool := store(t)
	const writers, rounds = 8, 25
	together(writers, func(i int) {
		random := rand.New(rand.NewPCG(7, uint64(i)))
		for round := range rounds {
			names := []string{"old-a", "old-b", fmt.Sprintf("new-%d-a", round), fmt.Sprintf("new-%d-b", round)}
			random.Shuffle(len(names), func(a, b int) { names[a], names[b] = names[b], names[a] })
			var appends []kiroku.StreamAppend
			for _, name := range names[:1+random.IntN(len(names))] {
				appends = append(appends, to(name, kiroku.AnyVersion(), events(2)...))
			}
			if _, err := kiroku.Append(t.Context(), pool, appends...); err != nil {
				t.Errorf("writer %d, round %d: %v", i, round, err)
			}
		}
	})
	wantDenseLog(t, pool)
	if deadlocks := queryOne[int](t, pool, `select deadlocks from pg_stat_database where datname = current_database()`); deadlocks > 0 {
		t.Errorf("%d deadlocks", deadlocks)
	}
}

// wantDenseLog checks that positions and versions have no hole and that the
// counters say the same as the rows.
func wantDenseLog(tb testing.TB, pool *pgxpool.Pool) {
	tb.Helper()
	wrong := queryOne[int](tb, pool, `
		select count(*) from (
			select s.stream_id
			from kiroku.streams s
			left join kiroku.stream_events e on e.stream_id = s.stream_id
			group by s.stream_id, s.stream_version
			having s.stream_version <> count(e.*) or s.stream_version <> coalesce(max(e.stream_version), 0)
				or coalesce(min(e.stream_version), 1) <> 1
		) holes`)
	if wrong > 0 {
		tb.Errorf("%d streams with holes", wrong)
	}
	if wrong := queryOne[int](tb, pool, `
		select count(*)
		from kiroku.stream_events a
		left join kiroku.stream_events h on h.event_id = a.event_id and h.stream_id = a.original_stream_id
			and h.stream_version = a.original_stream_version
		where a.stream_id = 0 and h.event_id is null`); wrong > 0 {
		tb.Errorf("%d entries of the log have no home", wrong)
	}
	if wrong := queryOne[int](tb, pool, `
		select count(*) from (
			select e.created_at < lag(e.created_at) over (order by l.stream_version) as back
			from kiroku.stream_events l join kiroku.events e using (event_id)
			where l.stream_id = 0
		) times where back`); wrong > 0 {
		tb.Errorf("%d events were recorded before the one at the position before", wrong)
	}
}
