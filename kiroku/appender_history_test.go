package kiroku_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/internal/pgtest"
	"github.com/suisha-go/suisha/kiroku"
)

// past is one call with what it returned. Its ticks are of one clock for all.
type past struct {
	began, ended int64
	appends      []kiroku.StreamAppend
	kinds        []string
	exact        []int64
	got          []kiroku.Appended
	err          error
}

// Random appends of two processes, some by hand beside them: what they return
// is what they would have returned one after another, in an order that agrees
// with when they were called.
func TestSharedAppendsAreAHistoryOfSeparateOnes(t *testing.T) {
	t.Parallel()
	pool := store(t)
	other, err := pgxpool.New(t.Context(), pgtest.DSN(pool))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	a, b := kiroku.NewAppender(pool), kiroku.NewAppender(other)
	var clock atomic.Int64
	var mu sync.Mutex
	var history []*past
	together(12, func(i int) {
		random := rand.New(rand.NewPCG(5, uint64(i)))
		seen := map[string]int64{} // versions that this writer knows of
		for range 40 {
			p := randomAppend(random, seen)
			p.began = clock.Add(1)
			switch {
			case i%6 == 5:
				p.got, p.err = kiroku.Append(t.Context(), pool, p.appends...)
			case i%2 == 0:
				p.got, p.err = a.Append(t.Context(), p.appends...)
			default:
				p.got, p.err = b.Append(t.Context(), p.appends...)
			}
			p.ended = clock.Add(1)
			for _, g := range p.got {
				seen[g.Stream] = g.Version
			}
			mu.Lock()
			history = append(history, p)
			mu.Unlock()
		}
	})
	checkHistory(t, pool, history)
	wantDenseLog(t, pool)
}

func randomAppend(random *rand.Rand, seen map[string]int64) *past {
	p := &past{}
	names := []string{"a", "b", "c", "d", fmt.Sprintf("n-%d", random.IntN(60))}
	random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names[:1+random.IntN(5)/3] {
		kind, version := []string{"any", "any", "any", "none", "exists", "exact"}[random.IntN(6)], seen[name]
		p.kinds, p.exact = append(p.kinds, kind), append(p.exact, version)
		p.appends = append(p.appends, to(name, map[string]kiroku.ExpectedVersion{
			"any": kiroku.AnyVersion(), "none": kiroku.NoStream(), "exists": kiroku.StreamExists(), "exact": kiroku.ExactVersion(version),
		}[kind], events(1+random.IntN(3))...))
	}
	return p
}

func checkHistory(t *testing.T, pool *pgxpool.Pool, history []*past) {
	t.Helper()
	var done []*past
	for _, p := range history {
		if p.err == nil {
			done = append(done, p)
		} else if !errors.Is(p.err, kiroku.ErrConflict) {
			t.Errorf("%v", p.err)
		}
	}
	last := func(p *past) kiroku.Position { return p.got[len(p.got)-1].Position }
	slices.SortFunc(done, func(x, y *past) int { return int(last(x) - last(y)) })
	m := &model{versions: map[string]int64{}, deleted: map[string]bool{}}
	latest := int64(0)
	for _, p := range done {
		if faults := m.append(p.appends, p.kinds, p.exact); len(faults) > 0 {
			t.Fatalf("written though %v: %+v", faults, p.got)
		}
		if last(p) != kiroku.Position(len(m.log)) {
			t.Fatalf("at %d, want %d: %+v", last(p), len(m.log), p.got)
		}
		for _, g := range p.got {
			if g.Version != m.versions[g.Stream] {
				t.Fatalf("%+v, want version %d", g, m.versions[g.Stream])
			}
		}
		if p.ended < latest {
			t.Errorf("%+v had returned before one that is below it in the log was called", p.got)
		}
		latest = max(latest, p.began)
	}
	refused := 0
	for _, p := range history {
		if p.err != nil {
			refused++
			checkRefusal(t, p, done)
		}
	}
	t.Logf("%d written in %d transactions, %d refused", len(done), transactions(t, pool), refused)
}

// checkRefusal: what it says of a stream was so at some time during the call.
func checkRefusal(t *testing.T, p *past, done []*past) {
	t.Helper()
	for _, err := range p.err.(interface{ Unwrap() []error }).Unwrap() {
		var (
			exists   *kiroku.StreamExistsError
			missing  *kiroku.StreamNotFoundError
			conflict *kiroku.VersionConflictError
			stream   string
			said     int64
		)
		switch {
		case errors.As(err, &exists):
			stream, said = exists.Stream, exists.Actual
		case errors.As(err, &missing):
			stream, said = missing.Stream, missing.Actual
		case errors.As(err, &conflict):
			stream, said = conflict.Stream, conflict.Actual
		}
		possible, least := false, int64(0)
		versions := []int64{0}
		for _, d := range done {
			for _, g := range d.got {
				if g.Stream != stream {
					continue
				}
				if d.began < p.ended {
					versions = append(versions, g.Version)
				}
				if d.ended < p.began {
					least = max(least, g.Version)
				}
			}
		}
		for _, v := range versions {
			possible = possible || v == said && v >= least
		}
		if !possible {
			t.Errorf("%v: it was at %d before the call and at %v until its end", err, least, versions)
		}
	}
}

// Backends are killed while many write with ids of their own and write again
// when they do not know: each event is there once, and whatever was said to be
// written is.
func TestNothingIsLostOrDoubledWhenBackendsAreKilled(t *testing.T) {
	t.Parallel()
	pool := store(t)
	a := kiroku.NewAppender(pool)
	stop := make(chan struct{})
	var killer sync.WaitGroup
	kills := 0
	own, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig) // one that it cannot hit itself
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = own.Close(t.Context()) }()
	killer.Go(func() {
		tick := time.NewTicker(25 * time.Millisecond)
		defer tick.Stop()
		for kills < 30 { // with more it hardly gets on
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			kills += queryOne[int](t, own, `
				select count(pg_terminate_backend(pid)) from (
					select pid from pg_stat_activity
					where datname = current_database() and pid <> pg_backend_pid() and state = 'active' limit 1) one`)
		}
	})
	const writers, each = 16, 30
	var unknown atomic.Int64
	written := make([][]uuid.UUID, writers)
	together(writers, func(i int) {
		for n := range each {
			e := event(n)
			e.ID = newID()
			for {
				_, err := a.Append(t.Context(), to(fmt.Sprintf("s-%d", i%5), kiroku.AnyVersion(), e))
				var duplicate *kiroku.DuplicateEventError
				if err == nil || errors.As(err, &duplicate) && duplicate.EventID == e.ID {
					break
				}
				if errors.Is(err, kiroku.ErrConflict) || errors.Is(err, kiroku.ErrInvalid) {
					t.Errorf("%v", err)
					return
				}
				unknown.Add(1)
			}
			written[i] = append(written[i], e.ID)
		}
	})
	close(stop)
	killer.Wait()
	a.Wait()
	pool.Reset() // the last ones hit may be idle in it
	wantDenseLog(t, pool)
	all := slices.Concat(written...)
	if n := queryOne[int](t, pool, `select count(*) from kiroku.events where event_id::text = any ($1)`, texts(all)); n != writers*each {
		t.Errorf("%d of %d events are there", n, writers*each)
	}
	if n := queryOne[int](t, pool, `select count(*) from kiroku.events`); n != writers*each {
		t.Errorf("%d events, want %d", n, writers*each)
	}
	t.Logf("%d backends killed, %d calls were told that they do not know", kills, unknown.Load())
	if kills == 0 || unknown.Load() == 0 {
		t.Error("nothing was hit")
	}
}

func texts(ids []uuid.UUID) []string {
	var out []string
	for _, id := range ids {
		out = append(out, id.String())
	}
	return out
}
