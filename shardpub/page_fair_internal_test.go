package shardpub

import (
	"testing"

	"github.com/suisha-go/suisha/kiroku"
)

// TestSinksThatStartNearEachOtherSharePages: 64 buckets of one worker cost as
// many pages as one.
func TestSinksThatStartNearEachOtherSharePages(t *testing.T) {
	t.Parallel()
	const keys, limit, sinks = 5000, 250, 64
	for _, c := range []struct {
		name     string
		together bool
		most     int
	}{
		// One page more finds that nothing is left: the last one was full.
		{"together", true, keys/limit + 1},
		// One after another, each has to meet the next one first.
		{"one after another", false, keys/limit + 1 + sinks},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			sim := newPageSim(t, 1000)
			sim.fill(keys, func(i int) int { return i * 7 % sinks })
			all := starts{}
			for id := range sinks {
				all[id] = kiroku.Position(id * 15)
				if !c.together {
					sim.join(keys, starts{id: all[id]})
				}
			}
			if c.together {
				sim.join(keys, all)
			}
			if got := sim.count(func() { sim.runDry(limit) }); got > c.most {
				t.Fatalf("%d pages, want at most %d", got, c.most)
			}
			sim.finish(limit)
		})
	}
}

// TestSinkFarBehindTakesEveryOtherPageAtMost: the live ones wait for one page of
// its, never for its catching up.
func TestSinkFarBehindTakesEveryOtherPageAtMost(t *testing.T) {
	t.Parallel()
	const keys, limit, live = 2000, 20, 4
	sim := newPageSim(t, 0)
	sim.fill(keys, always(live))
	at := starts{}
	for id := range live {
		at[id] = sim.head
	}
	sim.join(10, at)
	sim.runDry(limit)
	sim.join(limit, starts{live: 0})
	for i := range keys {
		if len(sim.g.all) == 1 {
			break
		}
		sink := sim.sinks[i%live]
		before := len(sink.got)
		sim.write(0, i%live)
		sim.wake()
		pages := sim.count(func() {
			for len(sink.got) == before && sim.turn(limit) {
				sim.sinks[live].drain(limit)
			}
		})
		if len(sink.got) == before || pages > 2 {
			t.Fatalf("a live key came after %d pages: %v, want at most 2", pages, len(sink.got) > before)
		}
		sink.drain(1)
	}
	if most := 2*len(sim.log)/limit + 10; sim.pages > most {
		t.Fatalf("%d pages until all were live, want at most %d", sim.pages, most)
	}
	sim.finish(limit)
}

// TestGroupsTakeTurns: of those that have something to read, the one that has
// waited longest is next.
func TestGroupsTakeTurns(t *testing.T) {
	t.Parallel()
	const sinks = 6
	sim := newPageSim(t, 0)
	sim.fill(600, func(i int) int { return i % sinks })
	for id := range sinks {
		sim.join(1000, starts{id: kiroku.Position(id * 50)})
	}
	for round := range 4 {
		seen := map[kiroku.Position]bool{}
		for range sinks {
			sim.ask()
			seen[sim.page.ask.After] = true
			sim.load(5)
			sim.queue(5)
		}
		for id := range sinks {
			if p := kiroku.Position(id*50 + round*5); !seen[p] {
				t.Fatalf("round %d: the group at %d had no turn: %v", round, p, seen)
			}
		}
	}
	sim.finish(50)
}

// TestGroupWaitsForAFullSinkUntilAnotherRunsDry: slow sinks keep sharing pages,
// a stuck one is left behind and stops nobody.
func TestGroupWaitsForAFullSinkUntilAnotherRunsDry(t *testing.T) {
	t.Parallel()
	sim := newPageSim(t, 0)
	sim.fill(100, func(i int) int { return i % 2 })
	sim.join(5, starts{0: 0})
	sim.join(50, starts{1: 0})
	sim.sinks[0].stuck = true
	sim.turn(10)
	sim.sinks[1].drain(4)
	if sim.turn(10) {
		t.Fatal("a page was read past a full sink while the other one had work")
	}
	sim.sinks[1].drain(1)
	if !sim.turn(10) || len(sim.parked) != 1 || len(sim.sinks[1].got) != 10 {
		t.Fatalf("parked %v, the dry sink got %v; want the full one parked and a page", sim.parked, sim.sinks[1].got)
	}
	sim.finish(10)
}

// TestAStuckSinkBehindDoesNotKeepTheOthersReading: at rest nothing is read, even
// while a group that has read less cannot go on.
func TestAStuckSinkBehindDoesNotKeepTheOthersReading(t *testing.T) {
	t.Parallel()
	sim := newPageSim(t, 0)
	sim.fill(20, func(i int) int { return i % 2 })
	sim.join(2, starts{0: 0})
	sim.sinks[0].stuck = true
	sim.turn(3) // fills it to the brim
	sim.join(50, starts{1: 15})
	sim.runDry(5)
	if len(sim.g.all) != 2 || len(sim.parked) != 0 {
		t.Fatalf("%d groups, parked %v, want the stuck sink's and the other one", len(sim.g.all), sim.parked)
	}
	if got := sim.count(func() { sim.turn(5) }); got != 0 {
		t.Fatalf("%d pages were read without need", got)
	}
	sim.finish(5)
}
