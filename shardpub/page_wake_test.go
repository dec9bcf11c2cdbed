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
