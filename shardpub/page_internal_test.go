package shardpub

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/suisha-go/suisha/kiroku"
)

const simSinks = 8

// actions are what can happen at any moment, by name.
func (s *pageSim) actions() map[string]func() {
	return map[string]func(){
		"append": func() {
			for range 1 + s.pick(12) {
				// Owners beyond the sinks stand for other categories.
				s.write(s.pick(4), s.pick(simSinks+3))
			}
			if s.pick(3) > 0 {
				s.wake()
			}
		},
		"poll": s.wake,
		"hard delete": func() {
			if len(s.log) > 0 {
				s.log[s.pick(len(s.log))].gone = true
			}
		},
		"join": func() {
			at := starts{}
			for range 1 + s.pick(3) {
				if id := s.pick(simSinks); s.sinks[id] == nil {
					at[id] = kiroku.Position(s.pick(int(s.head) + 1))
				}
			}
			s.join(1+s.pick(8), at)
		},
		"join at a cursor": func() {
			id := s.pick(simSinks)
			if n := len(s.g.all); n > 0 && s.sinks[id] == nil {
				s.join(1+s.pick(8), starts{id: s.g.all[s.pick(n)].cursor})
			}
		},
		"leave": func() { s.leave(s.pick(simSinks)) },
		"leave and come again": func() {
			if id := s.pick(simSinks); s.sinks[id] != nil {
				again := s.sinks[id].read
				s.leave(id)
				s.join(1+s.pick(8), starts{id: again})
			}
		},
		"get stuck or loose": func() {
			if sink := s.sinks[s.pick(simSinks)]; sink != nil {
				sink.stuck = !sink.stuck
			}
		},
		"drain": func() {
			for id := range simSinks {
				if sink := s.sinks[id]; sink != nil {
					sink.drain(s.pick(4))
				}
			}
		},
		"unpark": s.unpark,
		"ask":    func() { s.ask() },
		"load":   func() { s.load(1 + s.pick(12)) },
		"fail":   s.fail,
		"queue":  func() { s.queue(1 + s.pick(4)) },
		"turn":   func() { s.turn(1 + s.pick(12)) },
		"serve": func() { // a turn of a feed that keeps up
			s.unpark()
			s.turn(1 + s.pick(12))
		},
	}
}

// TestEverySinkGetsExactlyItsKeysWhateverHappens covers P-28, P-29 and P-32.
func TestEverySinkGetsExactlyItsKeysWhateverHappens(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		sim := newPageSim(t, kiroku.Position(rapid.SampledFrom([]int{0, 5, 50}).Draw(t, "near")))
		use := func(t *rapid.T) {
			sim.tb = t
			sim.pick = func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "pick") }
		}
		steps := map[string]func(*rapid.T){"": func(t *rapid.T) { use(t); sim.check() }}
		for name, act := range sim.actions() {
			steps[name] = func(t *rapid.T) { use(t); act() }
		}
		t.Repeat(steps)
		t.Repeat(steps)
		t.Repeat(steps)
		use(t)
		sim.finish(rapid.IntRange(1, 20).Draw(t, "limit"))
	})
}

// FuzzGroups plays bytes: near, then actions, each followed by what it picks.
func FuzzGroups(f *testing.F) {
	for seed := range 8 {
		program := make([]byte, 400)
		x := uint32(seed + 1)
		for i := range program {
			x ^= x << 13
			x ^= x >> 17
			x ^= x << 5
			program[i] = byte(x >> 8)
		}
		f.Add(program)
	}
	f.Fuzz(func(t *testing.T, program []byte) {
		if len(program) > 4000 {
			t.Skip()
		}
		pick := func(n int) int {
			if len(program) == 0 {
				return 0
			}
			b := int(program[0])
			program = program[1:]
			return b % n
		}
		sim := newPageSim(t, kiroku.Position(pick(64)))
		sim.pick = pick
		actions := sim.actions()
		names := slices.Sorted(maps.Keys(actions))
		for len(program) > 0 {
			actions[names[pick(len(names))]]()
			sim.check()
		}
		sim.finish(7)
	})
}

// TestPageMovesOnlyTheSinksItWasReadFor: P-28. A sink that joins while the page
// is read, at the very cursor, gets its keys from a page of its own.
func TestPageMovesOnlyTheSinksItWasReadFor(t *testing.T) {
	t.Parallel()
	sim := newPageSim(t, 10)
	sim.fill(10, func(i int) int { return i % 2 })
	sim.join(10, starts{0: 0})
	sim.ask()
	sim.load(100)
	sim.queue(4)
	sim.join(10, starts{1: 0})
	sim.queue(100)
	sim.check()
	if late := sim.sinks[1]; len(late.got) != 0 || late.read != 0 {
		t.Fatalf("the late sink has read %d and got %v", late.read, late.got)
	}
	sim.finish(100)
}

// TestQueueThatFillsInThePageEndsAtTheLastKeyQueued: P-28, P-29.
func TestQueueThatFillsInThePageEndsAtTheLastKeyQueued(t *testing.T) {
	t.Parallel()
	sim := newPageSim(t, 10)
	sim.fill(10, func(i int) int { return i % 2 }) // sink 0 has the odd positions
	sim.join(3, starts{0: 0})
	sim.join(99, starts{1: 0})
	sim.turn(100)
	sim.check()
	if got := sim.parked[0]; got != 6 { // 1, 3 and 5 were queued, 7 was refused
		t.Fatalf("the full sink has read %d, want 6", got)
	}
	if got := sim.sinks[1]; got.read != 10 || len(got.got) != 5 {
		t.Fatalf("the other one has read %d and got %v", got.read, got.got)
	}
	sim.sinks[0].drain(3)
	sim.unpark()
	if a, ok := sim.g.next(sim.room); !ok || a.After != 6 || a.Until != 10 {
		t.Fatalf("it goes on with (%d, %d]; want (6, 10]", a.After, a.Until)
	} else {
		sim.g.failed(a)
	}
	sim.finish(100)
}

// TestSinkThatComesAgainDuringAPageGetsNothingOfIt: P-28. The page was asked
// for on behalf of an earlier tenure.
func TestSinkThatComesAgainDuringAPageGetsNothingOfIt(t *testing.T) {
	t.Parallel()
	for _, others := range []bool{false, true} { // is the group still there?
		sim := newPageSim(t, 10)
		sim.fill(10, func(i int) int { return i % 2 })
		sim.join(10, starts{0: 0})
		if others {
			sim.join(10, starts{1: 0})
		}
		sim.ask()
		sim.load(100)
		sim.queue(4)
		sim.leave(0)
		sim.join(10, starts{0: 0})
		sim.queue(100)
		sim.check()
		if got := sim.sinks[0].got; len(got) != 0 {
			t.Fatalf("it got %v from a page of its earlier tenure", got)
		}
		sim.finish(100)
	}
}

// TestSinksStartTogetherOnlyWhenNear: P-29.
func TestSinksStartTogetherOnlyWhenNear(t *testing.T) {
	t.Parallel()
	sim := newPageSim(t, 10)
	sim.fill(100, func(i int) int { return i % 5 })
	sim.join(99, starts{0: 0, 1: 7, 2: 10, 3: 11})
	sim.join(99, starts{4: 12}) // near, but the group is on its way
	if got := len(sim.g.all); got != 3 {
		t.Fatalf("%d groups, want {0 1 2}, {3} and {4}", got)
	}
	sim.finish(8)
}

// TestGroupReadsOnlyUpToTheNextOneAndUnitesWithIt: P-29.
func TestGroupReadsOnlyUpToTheNextOneAndUnitesWithIt(t *testing.T) {
	t.Parallel()
	sim := newPageSim(t, 0)
	sim.fill(100, func(i int) int { return i % 2 })
	sim.join(99, starts{0: 40})
	sim.join(99, starts{1: 70})
	sim.ask()
	if a := sim.page.ask; a.After != 40 || a.Until != 70 {
		t.Fatalf("asked for (%d, %d], want (40, 70]", a.After, a.Until)
	}
	sim.load(1000)
	sim.queue(1000)
	sim.check()
	if len(sim.g.all) != 1 || sim.g.all[0].cursor != 70 {
		t.Fatalf("%d groups, the first at %d, want one at 70", len(sim.g.all), sim.g.all[0].cursor)
	}
	if got := sim.count(func() { sim.runDry(1000) }); got != 1 {
		t.Fatalf("%d pages for the rest, want 1", got)
	}
}

// A bucket that moved here waits for its first page, and its streams with it: neither
// those that have something to do nor those that came later may be read for before. One
// that cannot be read waits for its turn like all others.
func TestNewGroupsAreReadForInTheOrderInWhichTheyCame(t *testing.T) {
	t.Parallel()
	g := newGroups[int](0)
	next := func(fails int) int {
		a, ok := g.next(func(int) room { return room{free: 10, idle: true, fresh: true} })
		if !ok || len(a.Sinks) != 1 {
			t.Fatalf("asked for %v", a.Sinks)
		}
		for s := range a.Sinks {
			if s == fails {
				g.failed(a)
			} else {
				g.applied(a, a.After+1, true)
			}
			return s
		}
		return 0
	}
	const none = -1
	g.add(starts{0: 500})
	next(none)
	g.add(starts{1: 300})
	g.add(starts{2: 100})
	g.add(starts{3: 200})
	for want := 1; want <= 3; want++ {
		if got := next(none); got != want {
			t.Fatalf("read for %d, want %d", got, want)
		}
	}
	g.add(starts{4: 50})
	turns := map[int]int{}
	for range 50 {
		turns[next(4)]++
	}
	for s := range 5 {
		if turns[s] != 10 {
			t.Fatalf("in 50 turns read for %v, want each 10 times", turns)
		}
	}
}
