package kiroku_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/suisha-go/suisha/kiroku"
)

// model is an event store as one would write it down.
type model struct {
	versions map[string]int64
	deleted  map[string]bool
	log      []string // what is in the log, by position
}

// append is the contract of Append for one call: all, or nothing and every
// stream that is at fault.
func (m *model) append(appends []kiroku.StreamAppend, kinds []string, exact []int64) (faults []string) {
	for i, a := range appends {
		version, exists := m.versions[a.Stream]
		switch kind := kinds[i]; {
		case kind == "none" && exists:
			faults = append(faults, fmt.Sprintf("exists %s at %d", a.Stream, version))
		case exists && m.deleted[a.Stream]:
			faults = append(faults, fmt.Sprintf("deleted %s at %d", a.Stream, version))
		case (kind == "exists" || kind == "exact") && !exists:
			faults = append(faults, "missing "+a.Stream)
		case kind == "exact" && version != exact[i]:
			faults = append(faults, fmt.Sprintf("conflict %s at %d", a.Stream, version))
		}
	}
	if len(faults) > 0 {
		return faults
	}
	for _, a := range appends {
		for range a.Events {
			m.versions[a.Stream]++
			m.log = append(m.log, fmt.Sprintf("%s %d", a.Stream, m.versions[a.Stream]))
		}
	}
	return nil
}

func faultsOf(tb rapid.TB, err error) (faults []string) {
	for _, err := range err.(interface{ Unwrap() []error }).Unwrap() {
		var (
			exists   *kiroku.StreamExistsError
			missing  *kiroku.StreamNotFoundError
			conflict *kiroku.VersionConflictError
		)
		switch {
		case errors.As(err, &exists):
			faults = append(faults, fmt.Sprintf("exists %s at %d", exists.Stream, exists.Actual))
		case errors.As(err, &missing) && missing.Deleted:
			faults = append(faults, fmt.Sprintf("deleted %s at %d", missing.Stream, missing.Actual))
		case errors.As(err, &missing):
			faults = append(faults, "missing "+missing.Stream)
		case errors.As(err, &conflict):
			faults = append(faults, fmt.Sprintf("conflict %s at %d", conflict.Stream, conflict.Actual))
		default:
			tb.Fatalf("unexpected error: %v", err)
		}
	}
	return faults
}

func TestAppendIsTheModel(t *testing.T) {
	t.Parallel()
	pool := store(t)
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		m := &model{versions: map[string]int64{}, deleted: map[string]bool{}}
		base, err := kiroku.Head(t.Context(), pool)
		if err != nil {
			rt.Fatal(err)
		}
		names := []string{}
		for i := range 4 {
			names = append(names, fmt.Sprintf("run%d-%d", run, i))
		}
		for range rapid.IntRange(1, 8).Draw(rt, "steps") {
			if name := rapid.SampledFrom(names).Draw(rt, "stream"); rapid.IntRange(0, 4).Draw(rt, "toggle") == 0 && m.versions[name] > 0 {
				m.deleted[name] = !m.deleted[name]
				exec(t, pool, `update kiroku.streams set deleted_at = case when $2 then now() end where stream_name = $1`, name, m.deleted[name])
				continue
			}
			step(t, rt, pool, m, base, names)
		}
		keys, err := kiroku.ReadAll(t.Context(), pool, base, 1000)
		if err != nil {
			rt.Fatal(err)
		}
		var log []string
		for _, k := range keys {
			streams, err := kiroku.LookupStreams(t.Context(), pool, []int64{k.StreamID})
			if err != nil {
				rt.Fatal(err)
			}
			log = append(log, fmt.Sprintf("%s %d", streams[0].Name, k.Version))
		}
		if !slices.Equal(log, m.log) {
			rt.Fatalf("log %v\nwant %v", log, m.log)
		}
	})
	wantDenseLog(t, pool)
}

func step(t *testing.T, rt *rapid.T, db kiroku.DB, m *model, base kiroku.Position, names []string) {
	var (
		appends []kiroku.StreamAppend
		kinds   []string
		exact   []int64
	)
	chosen := rapid.Permutation(names).Draw(rt, "streams")[:rapid.IntRange(1, len(names)).Draw(rt, "count")]
	for _, name := range chosen {
		kind := rapid.SampledFrom([]string{"any", "any", "any", "none", "exists", "exact", "exact"}).Draw(rt, "kind")
		version := m.versions[name] + int64(rapid.SampledFrom([]int{0, 0, 0, 0, 1, -1}).Draw(rt, "off"))
		expected := map[string]kiroku.ExpectedVersion{
			"any": kiroku.AnyVersion(), "none": kiroku.NoStream(), "exists": kiroku.StreamExists(), "exact": kiroku.ExactVersion(version),
		}[kind]
		appends = append(appends, to(name, expected, events(rapid.IntRange(1, 3).Draw(rt, "events"))...))
		kinds, exact = append(kinds, kind), append(exact, version)
	}
	got, err := kiroku.Append(t.Context(), db, appends...)
	faults := m.append(appends, kinds, exact)
	if len(faults) > 0 {
		if err == nil {
			rt.Fatalf("appended %+v, want %v", got, faults)
		}
		if said := faultsOf(rt, err); !slices.Equal(said, faults) {
			rt.Fatalf("said %v, want %v", said, faults)
		}
		return
	}
	if err != nil {
		rt.Fatal(err)
	}
	last := base + kiroku.Position(len(m.log))
	for i, a := range slices.Backward(got) {
		if a.Version != m.versions[a.Stream] || a.Position != last || a.Stream != appends[i].Stream {
			rt.Fatalf("%+v, want version %d at %d", a, m.versions[a.Stream], last)
		}
		last -= kiroku.Position(len(a.EventIDs))
	}
}
