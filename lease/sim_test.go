package lease_test

import (
	"flag"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var simSchedules = flag.Int("sim.schedules", 0,
	"how many random schedules TestSimulatedOwnership plays; 0 is 20,000, or 500 with the race detector or -short")

// schedules is how many are to be played.
func schedules() int {
	switch {
	case *simSchedules > 0:
		return *simSchedules
	case testing.Short():
		return min(simDefault, 500)
	default:
		return simDefault
	}
}

// explore plays schedules until there were so many; with -rapid.seed, those of that
// seed.
func explore(t *testing.T, many int, kinds []string) {
	t.Helper()
	seeded := flag.Lookup("rapid.seed").Value.String() != "0"
	played, longest := 0, time.Duration(0)
	for played < many && (!seeded || played == 0) {
		rapid.Check(t, property(t, kinds, fault{}, func(_ schedule, o outcome) {
			played++
			longest = max(longest, o.settled)
		}))
	}
	t.Logf("%d schedules; all was owned in even shares at most %v after the last fault", played, longest)
}

// property plays one schedule and tells what came of it.
func property(t *testing.T, kinds []string, f fault, tell func(schedule, outcome)) func(*rapid.T) {
	t.Helper()
	return func(rt *rapid.T) {
		s := drawSchedule(rt, kinds)
		o := simulate(t, s, f)
		tell(s, o)
		if o.violation != "" {
			rt.Logf("%v\n%s", s, strings.Join(o.trace, "\n"))
			rt.Fatalf("%s", o.violation)
		}
	}
}

// Several workers share the buckets of one subscription while whatever can go
// wrong does: P-8 to P-15, P-18 to P-24.
func TestSimulatedOwnership(t *testing.T) {
	t.Parallel()
	for _, half := range []string{"a", "b"} { // one for each processor of a small machine
		t.Run(half, func(t *testing.T) {
			t.Parallel()
			explore(t, (schedules()+1)/2, mixedKinds)
		})
	}
}

// The wall clock goes forward, by as much as loses all trust, and back, which wins
// none; and the machine sleeps, while its monotonic clock stands still (P-22). The
// clock is the process's, so nothing runs beside this test.
func TestSimulatedOwnershipUnderClockSteps(t *testing.T) { //nolint:paralleltest // it moves the clock
	useSteppingClock(t)
	explore(t, (schedules()+39)/40, clockKinds)
	explore(t, (schedules()+39)/40, sleepKinds)
}

func TestSimulationIsTheSameEachTime(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		s := drawSchedule(rt, mixedKinds)
		first, second := simulate(t, s, fault{}), simulate(t, s, fault{})
		if first.fingerprint == second.fingerprint {
			return
		}
		one, other := inOrder(first.trace), inOrder(second.trace)
		for i := range min(len(one), len(other)) {
			if one[i] != other[i] {
				rt.Fatalf("%v\n%s\nor\n%s\nafter\n%s", s, one[i], other[i], strings.Join(one[:i], "\n"))
			}
		}
		if len(one) != len(other) {
			rt.Fatalf("%v\nof %d or %d lines", s, len(one), len(other))
		}
	})
}

// inOrder sorts what happened at the same moment: goroutines that wake then have no
// order.
func inOrder(trace []string) []string {
	sorted := slices.Clone(trace)
	at := func(line string) string {
		moment, _, _ := strings.Cut(strings.TrimLeft(line, " "), " ")
		return moment
	}
	for from := 0; from < len(sorted); {
		to := from + 1
		for to < len(sorted) && at(sorted[to]) == at(sorted[from]) {
			to++
		}
		slices.Sort(sorted[from:to])
		from = to
	}
	return sorted
}
