package kiroku_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/suisha-go/suisha/kiroku"
)

// Case 51: what notifications cost appenders that commit side by side.
func BenchmarkAppendersBesideEachOther(b *testing.B) {
	for _, notify := range []bool{true, false} {
		for _, appenders := range []int{1, 8, 32} {
			b.Run(fmt.Sprintf("notify=%v/appenders=%d", notify, appenders), func(b *testing.B) {
				pool := store(b)
				if !notify {
					exec(b, pool, `alter table kiroku.streams disable trigger stream_events_notify_insert`)
					exec(b, pool, `alter table kiroku.streams disable trigger stream_events_notify_update`)
				}
				var left atomic.Int64
				left.Store(int64(b.N))
				b.ResetTimer()
				var all sync.WaitGroup
				for i := range appenders {
					all.Go(func() {
						for left.Add(-1) >= 0 {
							if _, err := kiroku.Append(b.Context(), pool, to(fmt.Sprintf("s-%d", i), kiroku.AnyVersion(), event(1))); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				all.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "appends/s")
			})
		}
	}
}
