package lease_test

import (
	"fmt"
	"testing"

	"github.com/suisha-go/suisha/lease"
)

// A plan is made on every beat, by every worker, for every subscription.
func BenchmarkPlan(b *testing.B) {
	for _, shards := range []int{16, 64, 1024, 4096} {
		for _, workers := range []int{1, 4, 16} {
			steady := make([]byte, shards)
			joined := make([]byte, shards)
			for i := range steady {
				steady[i] = byte(i%workers + 1)
				joined[i] = byte(i%max(workers-1, 1) + 1) // the last one is new
			}
			for name, owners := range map[string][]byte{"steady": steady, "joined": joined} {
				v := lease.View{Self: id(1), Shards: shards, Members: members(workers), Leases: leases(1, owners...)}
				b.Run(fmt.Sprintf("%s/buckets=%d/workers=%d", name, shards, workers), func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						lease.Plan(v)
					}
				})
			}
		}
	}
}
