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
			at := map[int]kiroku.Position{}
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
				s.join(1+s.pick(8), map[int]kiroku.Position{id: s.g.all[s.pick(n)].cursor})
			}
		},
		"leave": func() { s.leave(s.pick(simSinks)) },
		"leave and come again": func() {
			if id := s.pick(simSinks); s.sinks[id] != nil {
				again := s.sinks[id].read
				s.leave(id)
				s.join(1+s.pick(8), map[int]kiroku.Position{id: again})
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
