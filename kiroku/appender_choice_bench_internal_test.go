package kiroku

import (
	"fmt"
	"testing"
)

// The choice is made before every shared statement, while others wait for it.
func BenchmarkChoose(b *testing.B) {
	for _, streams := range []int{1, 1000} { // all write to one stream, or each to its own
		for _, n := range []int{1, 16, 1000} {
			waiting := make([]shareable, n)
			for i := range waiting {
				waiting[i] = wants(use(fmt.Sprintf("orders-%d", i%streams), AnyVersion()))
			}
			b.Run(fmt.Sprintf("streams=%d/waiting=%d", streams, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if chosen := choose(waiting, nil, sharedLimits); len(chosen) != min(n, sharedLimits.appends) {
						b.Fatalf("%d go together", len(chosen))
					}
				}
			})
		}
	}
}
