package shardpub

import (
	"fmt"
	"testing"

	"github.com/suisha-go/suisha/kiroku"
)

// One page for all buckets of a process, from the choice of the group on.
func BenchmarkGroups(b *testing.B) {
	for _, buckets := range []int{16, 1024} {
		b.Run(fmt.Sprintf("buckets=%d", buckets), func(b *testing.B) {
			g := newGroups[int](1000)
			at := map[int]kiroku.Position{}
			for i := range buckets {
				at[i] = 0
			}
			g.add(at)
			free := func(int) room { return room{free: 256} }
			b.ReportAllocs()
			for b.Loop() {
				a, ok := g.next(free)
				if !ok {
					b.Fatal("nothing to read")
				}
				g.applied(a, a.After+1000, true)
			}
		})
	}
}
