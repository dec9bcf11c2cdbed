package lease_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"
)

// schedule is all that a simulation depends on: equal schedules give equal runs.
type schedule struct {
	shards int
	seed   uint64 // of jitter, latencies and the time that handlers take
	steps  []event
}

// event is one thing that happens, so long after the one before.
type event struct {
	after time.Duration
	kind  string
	who   int // counts the workers that are there; wraps around
	last  time.Duration
	n     int // a weight, or which of two ways
}

// What can happen.
const (
	rests     = "rest"        // nothing
	joins     = "join"        // a worker with weight n begins
	leaves    = "leave"       // in good order
	crashes   = "crash"       // for good; nobody sees its session end
	killed    = "kill"        // for good; its session is seen to end
	freezes   = "freeze"      // nothing of it runs for a time, then all goes on
	suspends  = "suspend"     // the same, and its session is seen to end
	severs    = "sever"       // it cannot reach the database, and its session is seen to end
	cuts      = "cut"         // its statements hang until their deadline
	fails     = "fail"        // its statements fail at once
	forgets   = "lose"        // its statements are done, but answered by an error
	slows     = "slow"        // its statements take seconds each way
	delays    = "delay"       // its statements are given up, and arrive later
	outage    = "outage"      // nobody reaches the database
	hangs     = "hang"        // its handlers do not return when they are to drain
	deafens   = "deafen"      // notifications do not reach it
	robs      = "relinquish"  // an operator frees its rows
	resigns   = "resign"      // it gives up a bucket by itself
	keiro     = "keiro"       // a worker by keiro's rules begins
	keiroEnds = "keiro ends"  // n: 0 in good order, 1 by a crash
	steps     = "clock steps" // the wall clocks of all workers go forward
	stepsBack = "steps back"  // they go back
	sleeps    = "sleep"       // the machine of all workers is suspended

	allFreeze  = "all freeze"  // all stand still, and go on one after another
	ends       = "end"         // its session is ended, and it knows; it comes back
	restart    = "restart"     // all sessions end, and the server is another one
	fall       = "fall"        // all sessions end; it is the same server afterwards
	lockRow    = "lock row"    // somebody locks the row of bucket who
	lockWorker = "lock worker" // somebody locks its presence
)

// kinds are what a schedule is made of; what is named twice happens twice as
// often.
var kinds = []string{
	rests, joins, joins, joins, leaves, crashes, killed, freezes, freezes, suspends, severs, cuts, fails, forgets,
	slows, slows, outage, hangs, deafens, robs, resigns, ends, ends, allFreeze, restart, fall, lockRow, lockWorker,
}

var (
	mixedKinds = append(slices.Clone(kinds), keiro, keiroEnds)
	clockKinds = append(slices.Clone(kinds), steps, steps, steps, stepsBack, stepsBack, stepsBack)
	// A machine whose clock goes back while it sleeps, or shortly before, cannot know
	// for how long it slept.
	sleepKinds = append(slices.Clone(mixedKinds), keiro, keiro, steps, sleeps, sleeps, sleeps)
)

func (e event) String() string {
	return fmt.Sprintf("+%-8v %s who=%d for=%v n=%d", e.after, e.kind, e.who, e.last, e.n)
}

// idle: what is left of an event that does not matter.
func (e event) idle() bool { return e.kind == rests && e.after == 0 }

func (s schedule) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d shards, seed %d\n", s.shards, s.seed)
	for _, e := range s.steps {
		if !e.idle() {
			fmt.Fprintf(&b, "  %v\n", e)
		}
	}
	return b.String()
}

// spans are times to draw from, in milliseconds.
type spans [][2]int

func (s spans) generator() *rapid.Generator[time.Duration] {
	return rapid.Custom(func(t *rapid.T) time.Duration {
		span := rapid.SampledFrom(s).Draw(t, "span")
		return time.Duration(rapid.IntRange(span[0], span[1]).Draw(t, "ms")) * time.Millisecond
	})
}

// Often short, and often about a TTL.
var (
	starts  = spans{{0, 10}, {0, 1000}}.generator()
	waits   = spans{{0, 50}, {0, 600}, {0, 600}, {0, 6_000}, {0, 12_000}, {25_000, 36_000}}.generator()
	lengths = spans{{0, 1_000}, {0, 4_000}, {0, 12_000}, {20_000, 40_000}, {28_000, 36_000}}.generator()
)

// drawSchedule draws a short one: a few workers, and then some of the kinds.
func drawSchedule(t *rapid.T, kinds []string) schedule {
	s := schedule{
		shards: rapid.SampledFrom([]int{1, 2, 3, 4, 7}).Draw(t, "shards"),
		seed:   uint64(rapid.IntRange(0, 1000).Draw(t, "seed")),
	}
	drawn := rapid.Custom(func(t *rapid.T) event {
		return event{
			kind: rapid.SampledFrom(kinds).Draw(t, "kind"), after: waits.Draw(t, "after"),
			who: rapid.IntRange(0, 4).Draw(t, "who"), last: lengths.Draw(t, "for"), n: rapid.IntRange(0, 3).Draw(t, "n"),
		}
	})
	for range rapid.IntRange(1, 3).Draw(t, "workers") {
		s.steps = append(s.steps, event{kind: joins, after: starts.Draw(t, "after")})
	}
	s.steps = append(s.steps, rapid.SliceOfN(drawn, 6, 17).Draw(t, "events")...)
	return s
}
