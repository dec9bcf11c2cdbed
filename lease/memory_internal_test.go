package lease

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"
)

const renew = 10 * time.Second

var (
	epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	other = uuid.UUID{15: 2}
	third = uuid.UUID{15: 3}
)

func at(d time.Duration) time.Time { return epoch.Add(d) }

// remembered is a memory that beats at given times and sees the same workers and
// rows each time.
type remembered struct {
	*memory
	live []Member
	rows []Row
}

func remember(live []Member, rows ...Row) *remembered {
	return &remembered{memory: newMemory(renew), live: live, rows: rows}
}

func (r *remembered) beat(d time.Duration) { r.see(at(d), at(d), r.live, r.rows) }

func TestWorkerSettlesAtItsSecondSighting(t *testing.T) { // P-10
	t.Parallel()
	m := remember([]Member{{ID: other}})
	m.beat(0)
	if m.settled(at(0), other) {
		t.Error("settled at first sight")
	}
	m.beat(60 * time.Millisecond)
	if m.settled(at(60*time.Millisecond), other) {
		t.Error("settled after 60 ms")
	}
	m.beat(120 * time.Millisecond)
	if !m.settled(at(120*time.Millisecond), other) {
		t.Error("not settled after 120 ms")
	}
	m.live = nil
	m.beat(time.Second)
	m.live = []Member{{ID: other}}
	m.beat(2 * time.Second)
	if m.settled(at(2*time.Second), other) {
		t.Error("settled at once after an absence")
	}
}

func TestLeaseRipensOnlyUnderThisWorkersOwnEyes(t *testing.T) { // P-11
	t.Parallel()
	dead := Row{Bucket: 0, Owner: other, Expiry: 1, Left: -time.Hour}
	ripeAt := func(beats ...time.Duration) bool {
		m := remember(nil, dead)
		for _, d := range beats {
			if d < 0 {
				m.fail()
				continue
			}
			m.beat(d)
		}
		return m.ripe(at(beats[len(beats)-1]), 0)
	}
	s := time.Second
	tests := []struct {
		name  string
		beats []time.Duration // negative: one that failed
		want  bool
	}{
		{"not at first sight, however long it has been expired", []time.Duration{0}, false},
		{"not at 1.2 renew", []time.Duration{0, 10 * s, 12 * s}, false},
		{"after 1.2 renew", []time.Duration{0, 10 * s, 12*s + time.Millisecond}, true},
		{"afresh after a failed beat", []time.Duration{0, 10 * s, -1, 13 * s}, false},
		{"and then after 1.2 renew", []time.Duration{0, 10 * s, -1, 13 * s, 23 * s, 26 * s}, true},
		{"afresh after a late beat", []time.Duration{0, 10 * s, 30 * s}, false},
	}
	for _, test := range tests {
		if got := ripeAt(test.beats...); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
	m := remember(nil, dead)
	m.beat(0)
	m.beat(10 * s)
	m.rows[0].Expiry = 2 // it was renewed
	m.beat(13 * s)
	if m.ripe(at(13*s), 0) {
		t.Error("ripe although renewed")
	}
}

func TestDatabaseOutageIsNoStampede(t *testing.T) { // L-10, P-11
	t.Parallel()
	// Two TTLs of failed beats: every lease is long expired when it comes back.
	m := remember([]Member{{ID: other}}, Row{Bucket: 0, Owner: other, Expiry: 1, Left: time.Second})
	m.beat(0)
	m.beat(10 * time.Second)
	for range 100 {
		m.fail()
	}
	m.rows[0].Left = -30 * time.Second
	m.beat(70 * time.Second)
	m.beat(80 * time.Second)
	if m.ripe(at(80*time.Second), 0) {
		t.Error("claims within one interval of the recovery")
	}
}

func TestBucketLiesForOneIntervalThenForTwo(t *testing.T) { // P-10, P-12
	t.Parallel()
	m := remember(nil, Row{Bucket: 0})
	for _, test := range []struct {
		seconds int
		want    int
	}{{0, 0}, {10, 0}, {12, 0}, {13, 1}, {25, 1}, {26, 2}} {
		d := time.Duration(test.seconds) * time.Second
		m.beat(d)
		if got := m.lying(at(d), at(d), 0, true); got != test.want {
			t.Errorf("after %v: %d, want %d", d, got, test.want)
		}
	}
	if m.lying(at(27*time.Second), at(27*time.Second), 0, false); m.lying(at(28*time.Second), at(28*time.Second), 0, true) != 0 {
		t.Error("still lying after it was taken")
	}
}

func TestWorkerThatLetsItsDealLieIsIdleUntilItClaims(t *testing.T) { // P-10
	t.Parallel()
	m := remember([]Member{{ID: other}, {ID: third}}, Row{Bucket: 0}, Row{Bucket: 1, Owner: other, Expiry: 1})
	due := []Due{{Member: other, Free: true}}
	nobody := func(uuid.UUID) bool { return false }
	turn := func(d time.Duration, due []Due) bool {
		m.beat(d)
		m.dealt(at(d), at(d), due, nobody)
		return m.idle(at(d), other)
	}
	s := time.Second
	for d := time.Duration(0); d <= 15*s; d += 5 * s {
		if turn(d, due) {
			t.Fatalf("idle after %v", d)
		}
	}
	if !turn(16*s, due) {
		t.Fatal("not idle after 1.5 intervals")
	}
	if m.idle(at(16*s), third) {
		t.Error("the other one is idle")
	}
	// It is given another chance, later each time.
	if !turn(30*s, nil) || !turn(45*s, nil) || turn(47*s, nil) {
		t.Error("not idle for three intervals")
	}
	turn(48*s, due)
	turn(58*s, due)
	if !turn(65*s, due) || !turn(80*s, nil) || !turn(95*s, nil) || !turn(110*s, nil) || !turn(124*s, nil) {
		t.Error("the second time is not longer")
	}
	m.rows[0] = Row{Bucket: 0, Owner: other, Expiry: 1}
	if turn(124*s+1, nil) {
		t.Error("idle although it claimed")
	}
}

func TestKeiroWorkerIsGivenTwoPasses(t *testing.T) { // P-12
	t.Parallel()
	m := remember([]Member{{ID: other}}, Row{Bucket: 0})
	keiro := func(uuid.UUID) bool { return true }
	for d := time.Duration(0); d <= 30*time.Second; d += 5 * time.Second {
		m.beat(d)
		m.dealt(at(d), at(d), []Due{{Member: other, Free: true}}, keiro)
		if got, want := m.idle(at(d), other), d > 25*time.Second; got != want {
			t.Errorf("after %v: idle %v", d, got)
		}
	}
}

func TestSharesAreExactAndFollowTheWeights(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 200).Draw(t, "n")
		c := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) claimant {
			return claimant{weight: rapid.IntRange(1, 10).Draw(t, "weight"), holds: rapid.IntRange(0, 70).Draw(t, "holds")}
		}), 1, 20).Draw(t, "claimants")
		total, sum := 0, 0
		for _, x := range c {
			total += x.weight
		}
		got := shares(n, c)
		for i, x := range c {
			sum += got[i]
			if low := n * x.weight / total; got[i] != low && got[i] != low+1 {
				t.Fatalf("share %d of weight %d in %d of %d", got[i], x.weight, total, n)
			}
			for j, y := range c {
				if x.weight == y.weight && x.holds > y.holds && x.holds > n*x.weight/total && got[i] < got[j] {
					t.Fatalf("who holds one more already gets less: %v of %v", got, c)
				}
			}
		}
		if sum != n {
			t.Fatalf("%v add up to %d, not %d", got, sum, n)
		}
	})
}

func TestPace(t *testing.T) { // P-7
	t.Parallel()
	ms := time.Millisecond
	tests := []struct {
		name      string
		look      outlook
		low, high time.Duration
	}{
		{"nothing hurries", outlook{}, 9000 * ms, 11000 * ms},
		{"failed", outlook{failed: true, settling: true}, 250 * ms, 1000 * ms},
		{"a foreign lease expires", outlook{ripens: 3000 * ms}, 3050 * ms, 3100 * ms},
		{"one expires after the next beat", outlook{ripens: time.Minute}, 9000 * ms, 11000 * ms},
		{"a drain waits for the second sighting", outlook{settling: true}, 120 * ms, 120 * ms},
		{"a claim came back short", outlook{missed: 1}, 50 * ms, 50 * ms},
		{"the common beat", outlook{common: 4000 * ms}, 4000 * ms, 4000 * ms},
		{"one expires before the common beat", outlook{common: 4000 * ms, ripens: 3000 * ms}, 3050 * ms, 3100 * ms},
		{"again", outlook{missed: 2}, 100 * ms, 100 * ms},
		{"and again", outlook{missed: 50}, 1000 * ms, 1000 * ms},
	}
	for _, test := range tests {
		for _, random := range []float64{0, 0.5, 0.999} {
			test.look.random = random
			if got := nextPass(renew, test.look); got < test.low || got > test.high {
				t.Errorf("%s: %v, want %v to %v", test.name, got, test.low, test.high)
			}
		}
	}
	if got := nextPass(200*ms, outlook{failed: true, random: 0.99}); got > 200*ms {
		t.Errorf("a failed beat is repeated after %v, later than an interval", got)
	}
	at := func(d time.Duration) time.Time { return time.Unix(1000, 0).Add(d) }
	var pace passes
	if got := pace.spaced(at(0)); got != 0 {
		t.Errorf("a wake before any pass waits %v", got)
	}
	for _, d := range []time.Duration{0, 20 * ms, 40 * ms} {
		pace.began(at(d))
		if got := pace.spaced(at(d + 5*ms)); got != 15*ms {
			t.Errorf("a wake 5 ms after a pass waits %v", got)
		}
	}
	pace.began(at(60 * ms))
	if got := pace.spaced(at(80 * ms)); got != 170*ms {
		t.Errorf("the fifth waits %v", got)
	}
	pace.began(at(250 * ms))
	if got := pace.spaced(at(300 * ms)); got != 200*ms {
		t.Errorf("the sixth waits %v", got)
	}
	if got := pace.spaced(at(time.Hour)); got != 0 {
		t.Errorf("an hour later it waits %v", got)
	}
}

func TestWakesOfReleasesDoNotWaitForTheirTurn(t *testing.T) { // P-7
	t.Parallel()
	const ms = time.Millisecond
	at := func(d time.Duration) time.Time { return time.Unix(1000, 0).Add(d) }
	var pace passes
	for d := time.Duration(0); d < 10*wakeGap; d += wakeGap {
		pace.began(at(d))
	}
	const last = 9 * wakeGap
	if got := pace.spaced(at(last)); got < time.Second {
		t.Fatalf("after ten passes a wake waits %v", got)
	}
	for _, test := range []struct {
		live int
		gap  time.Duration
	}{{1, 20 * ms}, {4, 20 * ms}, {8, 40 * ms}, {1000, 250 * ms}} {
		pace.learned(Pass{Awaits: true, Live: test.live})
		if got := pace.spaced(at(last + 5*ms)); got != test.gap-5*ms {
			t.Errorf("of %d workers one that awaits buckets waits %v, want %v", test.live, got, test.gap-5*ms)
		}
	}
	before := pace
	for d := last + wakeGap; d < last+time.Second; d += wakeGap {
		pace.began(at(d))
	}
	pace.learned(Pass{})
	if pace.paid != before.paid {
		t.Errorf("passes for buckets on their way delay later ones by %v", pace.paid.Sub(before.paid))
	}
}
