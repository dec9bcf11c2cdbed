package bench_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/internal/bench"
	"github.com/suisha-go/suisha/internal/pgtest"
	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/shardpub"
)

func store(t *testing.T) *pgxpool.Pool {
	t.Helper()
	return pgtest.New(t, shardpub.Migrate)
}

// appended appends what a load says, event by event in order of positions.
func appended(t *testing.T, pool *pgxpool.Pool, l bench.Load) {
	t.Helper()
	next := map[string]int{}
	for p := 1; p <= l.Events; p++ {
		category := bench.Orders
		if l.Every > 0 && p%l.Every == 0 {
			category = bench.Rare
		}
		n := next[category]
		next[category]++
		_, streams := l.Of(category)
		a := kiroku.StreamAppend{
			Stream: fmt.Sprintf("%s-%d", category, n%streams),
			Events: []kiroku.Event{{Type: shardpub.DefaultEventType, Data: bench.Payload(n)}},
		}
		if _, err := kiroku.Append(t.Context(), pool, a); err != nil {
			t.Fatal(err)
		}
	}
}

// seen is all that readers see of a store, but for ids and times. Streams go by
// their names.
func seen(t *testing.T, pool *pgxpool.Pool, l bench.Load) []string {
	t.Helper()
	ctx := t.Context()
	all, err := kiroku.ReadAll(ctx, pool, 0, 10*l.Events)
	if err != nil {
		t.Fatal(err)
	}
	names := map[int64]string{}
	for _, e := range all {
		streams, err := kiroku.LookupStreams(ctx, pool, []int64{e.StreamID})
		if err != nil || len(streams) != 1 {
			t.Fatal(streams, err)
		}
		names[e.StreamID] = streams[0].Name + " of " + streams[0].Category
	}
	var out []string
	add := func(from string, events []kiroku.RecordedEvent, err error) {
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			out = append(out, fmt.Sprintf("%s: %s %d at %d: %s %s", from, names[e.StreamID], e.Version, e.Position, e.Type, e.Data))
		}
	}
	add("log", all, nil)
	for _, category := range []string{bench.Orders, bench.Rare} {
		events, err := kiroku.ReadCategory(ctx, pool, category, 0, 10*l.Events)
		add(category, events, err)
		_, streams := l.Of(category)
		for s := range streams {
			name := fmt.Sprintf("%s-%d", category, s)
			events, err := kiroku.ReadStream(ctx, pool, name, 0, 10*l.Events)
			add(name, events, err)
		}
	}
	head, err := kiroku.Head(ctx, pool)
	if err != nil {
		t.Fatal(err)
	}
	return append(out, fmt.Sprintf("head %d", head))
}

func TestLoadedEventsReadLikeAppendedOnes(t *testing.T) {
	t.Parallel()
	for _, l := range []bench.Load{
		{Events: 53, Streams: 7},
		{Events: 5, Streams: 9},
		{Events: 60, Streams: 8, Every: 10, RareStreams: 4},
	} {
		t.Run(fmt.Sprintf("%+v", l), func(t *testing.T) {
			t.Parallel()
			loaded, reference := store(t), store(t)
			appended(t, reference, l)
			err := pgx.BeginFunc(t.Context(), loaded, func(tx pgx.Tx) error { return l.Append(t.Context(), tx) })
			if err != nil {
				t.Fatal(err)
			}
			got, want := seen(t, loaded, l), seen(t, reference, l)
			for i := range max(len(got), len(want)) {
				if i >= len(got) || i >= len(want) || got[i] != want[i] {
					t.Fatalf("line %d: got %q, want %q", i, got[min(i, len(got)-1)], want[min(i, len(want)-1)])
				}
			}
			goesOn(t.Context(), t, loaded, l)
		})
	}
}

// goesOn: appends find their place behind what was loaded, and the schema is whole.
func goesOn(ctx context.Context, t *testing.T, pool *pgxpool.Pool, l bench.Load) {
	t.Helper()
	before, err := kiroku.ReadStream(ctx, pool, bench.Orders+"-0", 0, l.Events)
	if err != nil {
		t.Fatal(err)
	}
	got, err := kiroku.Append(ctx, pool, kiroku.StreamAppend{
		Stream: bench.Orders + "-0", Expected: kiroku.ExactVersion(int64(len(before))),
		Events: []kiroku.Event{{Type: "Next", Data: []byte("{}")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got[0].Position != kiroku.Position(l.Events+1) {
		t.Errorf("the next event stands at %d, want %d", got[0].Position, l.Events+1)
	}
	if err := kiroku.Verify(ctx, pool); err != nil {
		t.Error(err)
	}
}

func TestPayloadsAreAsLongAsTheySay(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 9, 10, 1_234_567} {
		if got := len(bench.Payload(n)); got != bench.PayloadSize {
			t.Errorf("payload %d has %d bytes, want %d", n, got, bench.PayloadSize)
		}
	}
}
