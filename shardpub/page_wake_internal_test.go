package shardpub

import "testing"

// TestWakesDuringAReadCauseOneFurtherRead: P-32.
func TestWakesDuringAReadCauseOneFurtherRead(t *testing.T) {
	t.Parallel()
	sim := newPageSim(t, 0)
	sim.join(99, starts{0: 0})
	sim.runDry(100)
	sim.wake()
	sim.ask()
	for range 5 {
		sim.write(0, 0)
		sim.wake()
	}
	sim.load(100)
	sim.wake()
	sim.queue(100)
	if got := sim.count(func() { sim.runDry(100) }); got != 1 {
		t.Fatalf("%d further reads, want 1", got)
	}
}

// TestPollMakesALostWakeGood: P-32. Nothing else would, so nothing else reads.
func TestPollMakesALostWakeGood(t *testing.T) {
	t.Parallel()
	sim := newPageSim(t, 0)
	sim.join(99, starts{0: 0})
	sim.runDry(100)
	sim.write(0, 0)
	if sim.turn(100) {
		t.Fatal("a page was read without a wake")
	}
	sim.wake()
	sim.runDry(100)
	if got := sim.sinks[0].got; len(got) != 1 {
		t.Fatalf("got %v after the poll, want one key", got)
	}
}

// TestFailedReadIsRepeated without another wake.
func TestFailedReadIsRepeated(t *testing.T) {
	t.Parallel()
	sim := newPageSim(t, 0)
	sim.fill(5, always(0))
	sim.wake()
	sim.join(99, starts{0: 0})
	for range 3 {
		if !sim.ask() {
			t.Fatal("the page that failed is not asked for again")
		}
		sim.fail()
	}
	sim.finish(100)
}

// TestWakeSurvivesTheGroupThatHeardIt: P-32. The sink that was ahead leaves with
// the wake unused.
func TestWakeSurvivesTheGroupThatHeardIt(t *testing.T) {
	t.Parallel()
	sim := newPageSim(t, 0)
	sim.join(99, starts{0: 0})
	sim.runDry(100)
	sim.fill(5, always(0))
	sim.join(99, starts{1: 5})
	sim.fill(5, always(0))
	sim.wake()
	sim.leave(1)
	sim.finish(100)
}

// TestWakeIsNotLostWhenAPagePassesTheGroupThatHeardIt: P-32. A sink joins ahead
// of a page that is being read, a wake comes, and the page ends beyond the sink,
// which is stuck.
func TestWakeIsNotLostWhenAPagePassesTheGroupThatHeardIt(t *testing.T) {
	t.Parallel()
	sim := newPageSim(t, 0)
	sim.fill(10, func(i int) int { return i % 2 })
	sim.wake()
	sim.join(99, starts{0: 0})
	sim.ask()
	sim.load(100)
	sim.join(1, starts{1: 5})
	sim.sinks[1].stuck = true
	sim.fill(1, always(0))
	sim.wake()
	sim.queue(100)
	sim.finish(100)
}

// TestMeetingAGroupAtRestCostsNoFurtherRead: that the log goes on behind the
// place where they meet is for the next wake to say.
func TestMeetingAGroupAtRestCostsNoFurtherRead(t *testing.T) {
	t.Parallel()
	for _, more := range []bool{false, true} {
		sim := newPageSim(t, 0)
		sim.fill(10, always(0))
		sim.join(99, starts{0: 10})
		sim.runDry(100)
		sim.join(99, starts{1: 5})
		sim.ask()
		sim.load(100)
		sim.page.more = more // a driver may say so of a page that was cut
		sim.queue(100)
		if sim.turn(100) {
			t.Fatal("a page was read without need")
		}
		sim.finish(100)
	}
}

// TestLeavingCostsNoRead as long as somebody stays at the end of the log.
func TestLeavingCostsNoRead(t *testing.T) {
	t.Parallel()
	sim := newPageSim(t, 0)
	sim.fill(10, always(0))
	sim.join(99, starts{0: 0, 1: 0})
	sim.runDry(100)
	sim.leave(1)
	if sim.turn(100) {
		t.Fatal("a page was read without need")
	}
}
