package lease_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/suisha-go/suisha/lease"
)

// FuzzPlan: no view makes Plan panic, claim what is not to be had, or lose a
// bucket that is held.
func FuzzPlan(f *testing.F) {
	f.Add([]byte{2, 8, 1, 1, 0, 0, 2, 2, 1, 0, 0, 0})
	f.Add([]byte{0, 1, 3, 3, 3})
	f.Add([]byte{9, 64, 255, 7, 31, 8, 64})
	f.Fuzz(func(t *testing.T, data []byte) {
		v := fuzzView(data)
		d := lease.Plan(v)
		if fmt.Sprint(lease.Plan(v)) != fmt.Sprint(d) {
			t.Fatal("not deterministic")
		}
		var held []int
		for _, l := range v.Leases {
			if l.Held {
				held = append(held, l.Bucket)
			}
		}
		left := slices.Concat(d.Keep, d.Drain)
		slices.Sort(left)
		if !slices.Equal(left, held) {
			t.Fatalf("keep %v and drain %v of %v", d.Keep, d.Drain, held)
		}
		for _, w := range d.Claim {
			l := v.Leases[w.Bucket]
			if mine := l.Owner == v.Self && !l.Held; !mine && l.State != lease.Free && l.State != lease.Ripe {
				t.Fatalf("claims %+v", l)
			}
			if w.Expected != l.Owner {
				t.Fatalf("expects %v of %v", w.Expected, l.Owner)
			}
		}
		for _, b := range d.Release {
			if l := v.Leases[b]; l.Owner != v.Self || l.Held {
				t.Fatalf("releases %+v", l)
			}
		}
	})
}

// fuzzView reads a view from bytes: any members, any rows.
func fuzzView(data []byte) lease.View {
	next := func() byte {
		if len(data) == 0 {
			return 0
		}
		b := data[0]
		data = data[1:]
		return b
	}
	v := lease.View{Self: id(1)}
	k := int(next()%8) + 1
	v.Shards = int(next()%65) + 1
	for i := range k {
		flags := next()
		m := lease.Member{ID: id(byte(i + 1)), Weight: int(next()), Settled: flags&1 == 0, Idle: flags&2 != 0 && i > 0, Keiro: flags&4 != 0 && i > 0, Leaving: flags&8 != 0}
		for range flags >> 6 {
			m.Cannot = append(m.Cannot, int(next())%v.Shards)
		}
		v.Members = append(v.Members, m)
	}
	for b := range v.Shards {
		flags := next()
		l := lease.Lease{Bucket: b, State: lease.State(flags >> 4 % 5), Lying: int(flags>>3) % 3}
		if l.State != lease.Free {
			l.Owner = id(flags%8 + 1)
		}
		l.Held = l.Owner == v.Self && flags&128 != 0 && !slices.Contains(v.Members[0].Cannot, b) && l.State == lease.Leased
		v.Leases = append(v.Leases, l)
	}
	return v
}
