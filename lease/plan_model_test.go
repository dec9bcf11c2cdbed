package lease_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/suisha-go/suisha/lease"
)

// model is the shard table and the presence of a subscription, without time:
// every worker is settled and every release is seen at once.
type model struct {
	n      int
	owner  []uuid.UUID
	live   []uuid.UUID
	weight map[uuid.UUID]int
	giving map[uuid.UUID][]int
	// moves counts buckets that went from a live worker to another.
	moves int
}

func newModel(n int) *model {
	return &model{n: n, owner: make([]uuid.UUID, n), weight: map[uuid.UUID]int{}, giving: map[uuid.UUID][]int{}}
}

func (m *model) join(id uuid.UUID) { m.live = append(m.live, id) }

func (m *model) leave(id uuid.UUID) {
	m.live = slices.DeleteFunc(m.live, func(o uuid.UUID) bool { return o == id })
	delete(m.giving, id)
	for b, o := range m.owner {
		if o == id {
			m.owner[b] = uuid.Nil
		}
	}
}

func (m *model) view(self uuid.UUID) lease.View {
	v := lease.View{Self: self, Shards: m.n}
	for _, id := range m.live {
		v.Members = append(v.Members, lease.Member{ID: id, Weight: max(m.weight[id], 1), Settled: true, Cannot: m.giving[id]})
	}
	for b, o := range m.owner {
		l := lease.Lease{Bucket: b, Owner: o}
		if o != uuid.Nil {
			l.State = lease.Leased
			l.Held = o == self && !slices.Contains(m.giving[self], b)
		}
		v.Leases = append(v.Leases, l)
	}
	return v
}

// apply does what one worker decided.
func (m *model) apply(self uuid.UUID, d lease.Decision) error {
	for _, b := range d.Drain {
		if m.owner[b] != self || slices.Contains(m.giving[self], b) {
			return fmt.Errorf("%v drains %d, which it does not hold", self, b)
		}
		m.giving[self] = append(m.giving[self], b)
		m.moves++
	}
	for _, w := range d.Claim {
		if m.owner[w.Bucket] == uuid.Nil {
			m.owner[w.Bucket] = self
		}
	}
	return nil
}

// release ends the drains of a worker.
func (m *model) release(self uuid.UUID) {
	for _, b := range m.giving[self] {
		m.owner[b] = uuid.Nil
	}
	delete(m.giving, self)
}

func (m *model) counts() map[uuid.UUID]int {
	out := map[uuid.UUID]int{}
	for _, o := range m.owner {
		out[o]++
	}
	return out
}

// even: all is owned, in shares that differ by at most one.
func (m *model) even() bool {
	c := m.counts()
	for _, id := range m.live {
		if c[id] < m.n/len(m.live) || c[id] > (m.n+len(m.live)-1)/len(m.live) {
			return false
		}
	}
	return c[uuid.Nil] == 0
}

// round lets every worker pass once, in the given order, each on what it sees
// then. Drains that began before the round end in it.
func (m *model) round(order []uuid.UUID) error {
	for _, self := range order {
		m.release(self)
		if err := m.apply(self, lease.Plan(m.view(self))); err != nil {
			return err
		}
	}
	return nil
}

// weighted draws n buckets of k workers, or of nobody.
func weighted(t *rapid.T, buckets, workers *rapid.Generator[int]) *model {
	m := newModel(buckets.Draw(t, "n"))
	k := workers.Draw(t, "k")
	for i := range k {
		m.join(id(byte(i + 1)))
		m.weight[id(byte(i+1))] = rapid.IntRange(1, 4).Draw(t, "weight")
	}
	for b := range m.owner {
		if o := rapid.IntRange(0, k).Draw(t, "owner"); o > 0 {
			m.owner[b] = id(byte(o))
		}
	}
	return m
}

func shuffled(t *rapid.T, ids []uuid.UUID) []uuid.UUID {
	return rapid.Permutation(slices.Clone(ids)).Draw(t, "order")
}

// settle makes rounds until the shares are even and returns how many it took.
func (m *model) settle(t *rapid.T, most int) int {
	for i := range most {
		if m.even() && len(m.giving) == 0 {
			return i
		}
		if err := m.round(shuffled(t, m.live)); err != nil {
			t.Fatal(err)
		}
	}
	if !m.even() {
		t.Fatalf("not even after %d rounds: %v", most, m.counts())
	}
	return most
}

func TestConvergesAndThenMovesNothing(t *testing.T) { // P-10
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SampledFrom([]int{1, 2, 7, 8, 64}).Draw(t, "n")
		k := rapid.IntRange(1, 9).Draw(t, "k")
		m := newModel(n)
		for i := range k {
			m.join(id(byte(i + 1)))
		}
		for b := range m.owner { // any owners, live or not there
			if o := rapid.IntRange(0, k).Draw(t, "owner"); o > 0 {
				m.owner[b] = id(byte(o))
			}
		}
		m.settle(t, 6)
		before, moves := slices.Clone(m.owner), m.moves
		for range 5 {
			if err := m.round(shuffled(t, m.live)); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(before, m.owner) || m.moves != moves {
			t.Fatalf("moved in a steady state: %v to %v", before, m.owner)
		}
	})
}

func TestJoinAndLeaveMoveNoMoreThanTheyMust(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SampledFrom([]int{1, 7, 8, 64}).Draw(t, "n")
		m := newModel(n)
		m.join(id(100))
		m.settle(t, 3)
		for range rapid.IntRange(1, 6).Draw(t, "changes") {
			moves := m.moves
			if len(m.live) > 1 && rapid.Bool().Draw(t, "leave") {
				m.leave(rapid.SampledFrom(m.live).Draw(t, "who"))
				m.settle(t, 4)
				if m.moves != moves {
					t.Fatalf("a leaver made %d buckets of others move", m.moves-moves)
				}
				continue
			}
			fresh := id(byte(rapid.IntRange(1, 250).Filter(func(i int) bool {
				return !slices.Contains(m.live, id(byte(i)))
			}).Draw(t, "fresh")))
			m.join(fresh)
			m.settle(t, 6)
			// The joiner holds more than nothing, and that is all that moved.
			if got := m.moves - moves; got != m.counts()[fresh] {
				t.Fatalf("%d moves for a joiner that holds %d", got, m.counts()[fresh])
			}
		}
	})
}

func TestEqualSnapshotsGiveDecisionsThatFitTogether(t *testing.T) { // P-10
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := weighted(t, rapid.SampledFrom([]int{1, 7, 8, 64}), rapid.IntRange(1, 9))
		for b, o := range m.owner {
			if o != uuid.Nil && rapid.IntRange(0, 5).Draw(t, "gives") == 0 {
				m.giving[o] = append(m.giving[o], b)
			}
		}
		claimed, sum := map[int]uuid.UUID{}, 0
		after := map[uuid.UUID]int{}
		for _, self := range m.live {
			d := lease.Plan(m.view(self))
			sum += d.Share
			for _, w := range d.Claim {
				if other, twice := claimed[w.Bucket]; twice {
					t.Fatalf("%d is claimed by %v and %v", w.Bucket, other, self)
				}
				if m.owner[w.Bucket] != uuid.Nil {
					t.Fatalf("%v claims %d of %v", self, w.Bucket, m.owner[w.Bucket])
				}
				claimed[w.Bucket] = self
			}
			after[self] = len(d.Keep) + len(d.Claim)
			if len(m.giving) == 0 && after[self] > max(d.Share, len(d.Keep)) {
				t.Fatalf("%v ends with %d, its share is %d", self, after[self], d.Share)
			}
		}
		if sum != m.n {
			t.Fatalf("the shares add up to %d of %d", sum, m.n)
		}
		for b, o := range m.owner {
			if _, ok := claimed[b]; o == uuid.Nil && !ok {
				t.Fatalf("nobody claims %d", b)
			}
		}
	})
}

// Weights 1, 1 and 4 share 4 buckets: the quotas are 2/3, 2/3 and 2 2/3, so
// 1, 1, 2 is exact: every remainder is 2/3, and two of the three get one more. Of
// equal remainders who already has one more must keep it (P-10: sticky, no more
// moves than needed); shares looks at what is held in all, so the heaviest takes
// the bucket of a lighter one.
func TestEvenSharesOfUnequalWeightsStay(t *testing.T) {
	t.Parallel()
	m := newModel(4)
	for n, weight := range []int{1, 1, 4} {
		m.join(id(byte(n + 1)))
		m.weight[id(byte(n+1))] = weight
	}
	m.owner[0], m.owner[1], m.owner[2], m.owner[3] = id(1), id(2), id(3), id(3)
	for _, self := range m.live {
		if d := lease.Plan(m.view(self)); len(d.Drain) > 0 {
			t.Errorf("%v drains %v though the shares are exact", self[0], d.Drain)
		}
	}
}

// Of what a pass does the others are not told before a bucket is released. Whoever
// looks after it must deal what can be claimed as the others did before: a bucket that
// each leaves to another lies until something is released.
func TestWhatOneHasDoneChangesNoDealOfWhatIsLeft(t *testing.T) { // P-10, P-12
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := weighted(t, rapid.SampledFrom([]int{4, 7, 8, 16}), rapid.IntRange(2, 6))
		before := m.claims()
		for _, self := range shuffled(t, m.live) {
			d := lease.Plan(m.view(self))
			if err := m.apply(self, d); err != nil {
				t.Fatal(err)
			}
			for _, w := range d.Claim {
				before[w.Bucket] = uuid.Nil
			}
			if after := m.claims(); !slices.Equal(before, after) {
				t.Fatalf("%v claimed %v and gives %v: what is left goes to %v, and before to %v", self, d.Claim, d.Drain, after, before)
			}
		}
	})
}

// claims says who claims each free bucket, by number.
func (m *model) claims() []uuid.UUID {
	who := make([]uuid.UUID, m.n)
	for _, self := range m.live {
		for _, w := range lease.Plan(m.view(self)).Claim {
			who[w.Bucket] = self
		}
	}
	return who
}
