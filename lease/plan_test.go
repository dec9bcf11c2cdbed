package lease_test

import (
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/suisha-go/suisha/lease"
)

// members makes live, settled workers 1 to k.
func members(k int) []lease.Member {
	out := make([]lease.Member, k)
	for i := range out {
		out[i] = lease.Member{ID: id(byte(i + 1)), Weight: 1, Settled: true}
	}
	return out
}

// leases makes rows from owners: 0 is free, n is worker n. self holds its own.
func leases(self byte, owners ...byte) []lease.Lease {
	out := make([]lease.Lease, len(owners))
	for b, o := range owners {
		out[b] = lease.Lease{Bucket: b}
		if o != 0 {
			out[b].Owner, out[b].State, out[b].Held = id(o), lease.Leased, o == self
		}
	}
	return out
}

func wantedBuckets(wanted []lease.Wanted) []int {
	var out []int
	for _, w := range wanted {
		out = append(out, w.Bucket)
	}
	return out
}

func TestPlan(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		workers  int
		owners   []byte
		change   func(*lease.View)
		share    int
		claim    []int
		drain    []int
		release  []int
		keep     []int
		settling bool
		awaits   bool
	}{
		{name: "a lone worker owns all (S-35)", workers: 1, owners: []byte{0, 0, 0, 0}, share: 4, claim: []int{0, 1, 2, 3}},
		{name: "a lone worker never sheds", workers: 1, owners: []byte{1, 1, 1}, share: 3, keep: []int{0, 1, 2}},
		{name: "a joiner gets its exact share", workers: 2, owners: []byte{1, 1, 1, 1}, share: 2, drain: []int{2, 3}, keep: []int{0, 1}},
		{name: "who holds more keeps the extra", workers: 2, owners: []byte{1, 1, 1}, share: 2, drain: []int{2}, keep: []int{0, 1}},
		{name: "ties go by id", workers: 2, owners: []byte{0}, share: 1, claim: []int{0}},
		{
			name: "nothing drains toward a worker seen once", workers: 2, owners: []byte{1, 1},
			change: func(v *lease.View) { v.Members[1].Settled = false },
			share:  1, keep: []int{0, 1}, settling: true,
		},
		{
			name: "a joiner awaits what is dealt to it", workers: 2, owners: []byte{2, 2, 0},
			share: 1, claim: []int{2},
		},
		{
			name: "and knows when it is on its way", workers: 2, owners: []byte{2, 2, 2, 2},
			share: 2, awaits: true,
		},
		{
			name: "what only keiro can give is not waited for (P-12)", workers: 2, owners: []byte{2, 2, 2, 2},
			change: func(v *lease.View) { v.Members[1].Keiro = true },
			share:  2,
		},
		{
			name: "what a worker gives counts as given", workers: 2, owners: []byte{1, 1, 1, 1},
			change: func(v *lease.View) {
				v.Members[0].Cannot = []int{2}
				v.Leases[2].Held = false
			},
			share: 2, drain: []int{3}, keep: []int{0, 1},
		},
		{
			name: "a draining bucket never turns back", workers: 1, owners: []byte{1, 1},
			change: func(v *lease.View) {
				v.Members[0].Cannot = []int{1}
				v.Leases[1].Held = false
			},
			share: 2, keep: []int{0},
		},
		{
			name: "one that leaves is dealt nothing and does not give its leases away", workers: 2, owners: []byte{1, 2, 0},
			change: func(v *lease.View) { v.Members[1].Leaving = true },
			share:  3, claim: []int{2}, keep: []int{0}, awaits: true,
		},
		{
			name: "an idle worker counts with what it holds", workers: 3, owners: []byte{1, 2, 0, 0, 0, 0},
			change: func(v *lease.View) { v.Members[2].Idle = true },
			share:  3, claim: []int{2, 3}, keep: []int{0},
		},
		{
			name: "what others let lie is anyone's, under its share", workers: 2, owners: []byte{0, 2, 2, 2, 2, 0},
			change: func(v *lease.View) {
				// 2 holds four of six; one of them is on its way to 1.
				v.Leases[5].Lying = 1
			},
			share: 3, claim: []int{0, 5}, awaits: true,
		},
		{
			name: "an expired lease waits until it is ripe (P-11)", workers: 1, owners: []byte{1, 9, 9},
			change: func(v *lease.View) {
				v.Leases[1].State = lease.Expired
				v.Leases[2].State = lease.Ripe
			},
			share: 3, claim: []int{2}, keep: []int{0},
		},
		{
			name: "an owner without expiry is nobody's to take (S-2A)", workers: 1, owners: []byte{9, 0},
			change: func(v *lease.View) { v.Leases[0].State = lease.Void },
			share:  2, claim: []int{1},
		},
		{
			name: "a live lease of nobody known is left alone", workers: 1, owners: []byte{9, 0}, share: 2, claim: []int{1},
		},
		{
			name: "a row of ours that we do not work on is claimed", workers: 1, owners: []byte{1, 1},
			change: func(v *lease.View) { v.Leases[1].Held = false },
			share:  2, claim: []int{1}, keep: []int{0},
		},
		{
			name: "or freed, beyond the share", workers: 2, owners: []byte{1, 1},
			change: func(v *lease.View) { v.Leases[1].Held = false },
			share:  1, release: []int{1}, keep: []int{0},
		},
		{
			name: "renew only", workers: 2, owners: []byte{1, 1, 0},
			change: func(v *lease.View) { v.RenewOnly = true },
			share:  2, keep: []int{0, 1},
		},
		{
			name: "weights scale", workers: 2, owners: []byte{0, 0, 0, 0, 0, 0, 0, 0},
			change: func(v *lease.View) { v.Members[0].Weight = 3 },
			share:  6, claim: []int{0, 1, 2, 3, 4, 5},
		},
		{
			name: "toward keiro one drains at a time (P-12)", workers: 2, owners: []byte{1, 1, 1, 1, 2, 1},
			change: func(v *lease.View) { v.Members[1].Keiro = true },
			share:  3, drain: []int{3}, keep: []int{0, 1, 2, 5},
		},
		{
			name: "and the next only after it took the last", workers: 2, owners: []byte{1, 1, 1, 0, 2, 1},
			change: func(v *lease.View) { v.Members[1].Keiro = true },
			share:  3, keep: []int{0, 1, 2, 5},
		},
		{
			name: "what is dealt to keiro is anyone's only after two of its passes", workers: 2, owners: []byte{1, 2, 2, 2, 0, 0},
			change: func(v *lease.View) {
				v.Members[1].Keiro = true
				v.Leases[4].Lying, v.Leases[5].Lying = 1, 1
			},
			share: 3, claim: []int{4, 5}, keep: []int{0},
		},
		{
			name: "what its owner cannot take goes to who has least", workers: 2, owners: []byte{0, 2},
			change: func(v *lease.View) { v.Members[0].Cannot = []int{0} },
			share:  1,
		},
		{name: "more workers than buckets", workers: 3, owners: []byte{2, 3}, share: 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			v := lease.View{Self: id(1), Shards: len(test.owners), Members: members(test.workers), Leases: leases(1, test.owners...)}
			if test.change != nil {
				test.change(&v)
			}
			d := lease.Plan(v)
			if d.Share != test.share {
				t.Errorf("share %d, want %d", d.Share, test.share)
			}
			equal(t, "claim", wantedBuckets(d.Claim), test.claim)
			equal(t, "drain", d.Drain, test.drain)
			equal(t, "release", d.Release, test.release)
			equal(t, "keep", d.Keep, test.keep)
			if d.Awaits != test.awaits {
				t.Errorf("awaits %v", d.Awaits)
			}
			if d.Settling != test.settling {
				t.Errorf("settling %v", d.Settling)
			}
		})
	}
}

func TestHungBucketIsDealtToTheOther(t *testing.T) {
	t.Parallel()
	// Worker 1 cannot take bucket 0, whose old handler hangs: worker 2 takes it,
	// and gives its own in return.
	v := lease.View{Self: id(2), Shards: 2, Members: members(2), Leases: leases(2, 0, 2)}
	v.Members[0].Cannot = []int{0}
	d := lease.Plan(v)
	equal(t, "claim", wantedBuckets(d.Claim), []int{0})
	v.Leases = leases(2, 2, 2)
	d = lease.Plan(v)
	equal(t, "drain", d.Drain, []int{1})
}

func TestPassFailureKeepsWhatIsHeld(t *testing.T) { // T-08, S-32
	t.Parallel()
	d := lease.Plan(lease.View{Self: id(1), Shards: 4, RenewOnly: true, Members: members(1), Leases: leases(1, 1, 0, 1, 2)})
	equal(t, "keep", d.Keep, []int{0, 2})
	if len(d.Claim)+len(d.Drain)+len(d.Release) != 0 {
		t.Errorf("changes something: %+v", d)
	}
}

func TestExactShares(t *testing.T) { // T-07, L-0A
	t.Parallel()
	for _, test := range []struct{ n, k int }{{6, 3}, {6, 4}, {7, 3}, {4, 1}, {10, 4}, {1, 1}, {8, 3}, {64, 5}, {2, 5}} {
		sum := 0
		for self := range test.k {
			d := lease.Plan(lease.View{Self: id(byte(self + 1)), Shards: test.n, Members: members(test.k), Leases: leases(0, make([]byte, test.n)...)})
			if top := (test.n + test.k - 1) / test.k; d.Share > top || d.Share < test.n/test.k {
				t.Errorf("N=%d k=%d: a share of %d", test.n, test.k, d.Share)
			}
			sum += d.Share
		}
		if sum != test.n {
			t.Errorf("N=%d k=%d: shares add up to %d", test.n, test.k, sum)
		}
	}
}

func TestStickyExtraOutlivesTheRelease(t *testing.T) {
	t.Parallel()
	// Workers 1 and 2 each give one to 3, and 1 is quicker: it must not think
	// that now 2 has the better claim on the extra bucket.
	v := lease.View{Self: id(2), Shards: 7, Members: members(3), Leases: leases(2, 2, 2, 2, 0, 1, 1, 1)}
	v.Members[0].Cannot = []int{6} // 1 gives
	d := lease.Plan(v)
	if d.Share != 3 || len(d.Drain) != 0 {
		t.Errorf("share %d, drains %v", d.Share, d.Drain)
	}
}

func TestDueNamesWhoHasSomethingToClaim(t *testing.T) {
	t.Parallel()
	v := lease.View{Self: id(1), Shards: 4, Members: members(3), Leases: leases(1, 1, 1, 0, 9)}
	v.Leases[3].State = lease.Ripe
	d := lease.Plan(v)
	want := []lease.Due{{Member: id(2), Free: true}, {Member: id(3)}}
	if !slices.Equal(d.Due, want) {
		t.Errorf("due %v, want %v", d.Due, want)
	}
	if slices.ContainsFunc(d.Due, func(d lease.Due) bool { return d.Member == uuid.Nil }) {
		t.Error("nobody is due")
	}
}
