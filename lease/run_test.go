package lease_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/suisha-go/suisha/lease"
)

// bubble is some workers on one table in memory, in a synctest bubble.
type bubble struct {
	t     *testing.T
	n     int
	table *table
	push  bool
	lines map[*worker]*line
}

func inBubble(t *testing.T, n int, push bool, f func(t *testing.T, b *bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(t, &bubble{t: t, n: n, table: newTable(n), push: push, lines: map[*worker]*line{}})
	})
}

func (b *bubble) add(number byte, change ...func(*lease.KeeperConfig, *holder)) *worker {
	l := &line{table: b.table}
	w := newWorker(b.t, l, lease.Config{}, b.n, append(change, func(c *lease.KeeperConfig, _ *holder) {
		c.Identity.Worker = id(number)
	})...)
	w.SetRandom(func() float64 { return 0.5 })
	b.lines[w] = l
	if b.push {
		b.table.listen(w.Wake)
	}
	return w
}

func (b *bubble) start(number byte, change ...func(*lease.KeeperConfig, *holder)) *worker {
	return b.add(number, change...).start(b.t)
}

func (b *bubble) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (b *bubble) owns(want map[byte]int) {
	b.t.Helper()
	counts := b.table.counts()
	for number, n := range want {
		owner := id(number)
		if number == 0 {
			owner = uuid.Nil
		}
		if counts[owner] != n {
			b.t.Errorf("%d owns %d, want %d (%v)", number, counts[owner], n, counts)
		}
	}
}

func TestJoinersGetTheirShareWithinASecondWhenPushed(t *testing.T) {
	t.Parallel()
	inBubble(t, 8, true, func(_ *testing.T, b *bubble) {
		b.start(1)
		b.after(time.Second)
		b.owns(map[byte]int{1: 8})
		b.start(2)
		b.after(time.Second)
		b.owns(map[byte]int{1: 4, 2: 4})
		b.start(3)
		b.after(time.Second)
		b.owns(map[byte]int{1: 3, 2: 3, 3: 2})
		b.start(4)
		b.after(time.Second)
		b.owns(map[byte]int{1: 2, 2: 2, 3: 2, 4: 2})
	})
}

func TestFourStartedTogetherAreEvenWithinTwoSeconds(t *testing.T) {
	t.Parallel()
	inBubble(t, 64, true, func(_ *testing.T, b *bubble) {
		for number := range byte(4) {
			b.start(number + 1)
		}
		b.after(2 * time.Second)
		b.owns(map[byte]int{1: 16, 2: 16, 3: 16, 4: 16})
	})
}

func TestPollingAloneSettlesWithinThreeIntervals(t *testing.T) { // cases 1
	t.Parallel()
	inBubble(t, 8, false, func(_ *testing.T, b *bubble) {
		b.start(1)
		b.after(3 * time.Second)
		b.start(2)
		b.after(30 * time.Second)
		b.owns(map[byte]int{1: 4, 2: 4})
	})
}

func TestNothingMovesForSixtyBeats(t *testing.T) { // cases 2
	t.Parallel()
	inBubble(t, 7, true, func(t *testing.T, b *bubble) {
		for number := range byte(3) {
			b.start(number + 1)
			b.after(2 * time.Second)
		}
		before := b.table.claimed
		beats := b.table.beatCount()
		b.after(20 * 10 * time.Second)
		if b.table.claimed != before {
			t.Errorf("%d claims", b.table.claimed-before)
		}
		// A beat per interval and worker, whatever else happens (cases 8).
		if got := b.table.beatCount() - beats; got < 55 || got > 65 {
			t.Errorf("%d beats of three workers in 20 intervals", got)
		}
	})
}

func TestWakesAreCoalesced(t *testing.T) { // P-7
	t.Parallel()
	inBubble(t, 1, false, func(t *testing.T, b *bubble) {
		w := b.start(1)
		b.after(time.Second)
		before := b.table.beatCount()
		for range 200 {
			w.Wake()
			b.after(10 * time.Millisecond)
		}
		if got := b.table.beatCount() - before; got < 10 || got > 12 {
			t.Errorf("%d beats in 2 s of wakes, want 8 and 3 at once", got)
		}
	})
}

func TestMissedClaimIsTriedAgainAndBacksOff(t *testing.T) { // P-10
	t.Parallel()
	inBubble(t, 1, false, func(t *testing.T, b *bubble) {
		l := &blocked{line: line{table: b.table}}
		w := newWorker(t, l, lease.Config{}, 1).start(t)
		b.after(5 * time.Second)
		b.table.mu.Lock()
		tries := l.tries
		b.table.mu.Unlock()
		if tries < 7 || tries > 10 { // at 0, 0.05, 0.15, 0.35, 0.75, 1.55, 2.55, 3.55, 4.55
			t.Errorf("%d tries in 5 s", tries)
		}
		if w.Status().Share != 1 {
			t.Errorf("share %d", w.Status().Share)
		}
	})
}

// blocked is a table whose only row is locked by somebody.
type blocked struct {
	line
	tries int
}

func (b *blocked) Claim(context.Context, lease.Claim) ([]int, error) {
	b.table.mu.Lock()
	defer b.table.mu.Unlock()
	b.tries++
	return nil, nil
}

func TestWorkerThatNeverClaimsDoesNotKeepBucketsDark(t *testing.T) { // P-10
	t.Parallel()
	inBubble(t, 4, true, func(_ *testing.T, b *bubble) {
		b.start(1)
		b.after(time.Second)
		dull := newWorker(b.t, &blocked{line: line{table: b.table}}, lease.Config{}, 4, func(c *lease.KeeperConfig, _ *holder) {
			c.Identity.Worker = id(2)
		}).start(b.t)
		_ = dull
		b.after(5 * time.Second)
		b.owns(map[byte]int{1: 2, 0: 2})
		b.after(25 * time.Second)
		b.owns(map[byte]int{1: 4, 2: 0})
	})
}

func TestKeiroOwnerCountsAsLive(t *testing.T) { // P-9, P-12, R-8
	t.Parallel()
	inBubble(t, 4, true, func(_ *testing.T, b *bubble) {
		expiry := time.Now().Add(time.Hour)
		for bucket := range 3 {
			b.table.rows[bucket] = memRow{owner: id(9), expiry: expiry}
		}
		b.start(1)
		b.after(time.Minute)
		// Two are its share; it has no way to ask for the second.
		b.owns(map[byte]int{1: 1, 9: 3})
	})
}

func TestLeaseThatEndsThisVeryMomentIsNobodys(t *testing.T) { // S-2B
	t.Parallel()
	inBubble(t, 1, false, func(_ *testing.T, b *bubble) {
		w := b.add(1)
		b.table.rows[0] = memRow{owner: id(9), expiry: time.Now().Add(30 * time.Second)}
		b.table.workers[id(9)] = &memWorker{weight: 1} // dead, but one of ours
		pass := func() lease.Pass {
			p, err := w.Once(b.t.Context())
			if err != nil {
				b.t.Fatal(err)
			}
			return p
		}
		for range 4 {
			pass()
			b.after(10 * time.Second)
			if left := time.Until(b.table.rows[0].expiry); left == 0 {
				p := pass()
				if p.Live != 1 || len(p.Claimed)+len(p.Missed) != 0 {
					b.t.Errorf("at its end: %+v", p)
				}
				break
			}
		}
		b.after(time.Millisecond)
		equal(b.t, "claimed a moment later", pass().Claimed, []int{0})
	})
}

func TestKeirosExpiredLeaseIsGivenSomeGrace(t *testing.T) {
	t.Parallel()
	inBubble(t, 1, false, func(_ *testing.T, b *bubble) {
		b.table.rows[0] = memRow{owner: id(9), expiry: time.Now().Add(30 * time.Second)}
		b.start(1)
		b.after(32900 * time.Millisecond)
		b.owns(map[byte]int{9: 1})
		b.after(300 * time.Millisecond)
		b.owns(map[byte]int{1: 1})
	})
}
