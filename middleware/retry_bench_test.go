package middleware_test

import (
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	wm "github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/suisha-go/suisha/middleware"
	"github.com/suisha-go/suisha/shardpub"
)

// retries are the two ways to have a handler tried again, around one that succeeds.
func retries() (ours, watermills message.HandlerFunc) {
	policy := shardpub.RetryPolicy{MaxDeliveries: 4, Delay: time.Second, Multiplier: 2, Jitter: 0.1}
	stock := wm.Retry{MaxRetries: 3, InitialInterval: time.Second, MaxInterval: time.Minute, Multiplier: 2, RandomizationFactor: 0.1}
	return chain(returning(nil), middleware.Retry(policy)), chain(returning(nil), stock.Middleware)
}

// Nearly all messages succeed at once, so what they pay for the others counts.
func TestRetryAllocatesNothingWhereTheHandlerSucceeds(t *testing.T) { //nolint:paralleltest // it counts allocations
	msg, slot := delivery(t, func() error { return nil })
	ours, watermills := retries()
	allocs := func(h message.HandlerFunc) float64 {
		return testing.AllocsPerRun(100, func() {
			if _, err := h(msg); err != nil {
				t.Fatal(err)
			}
		})
	}
	own, stock := allocs(ours), allocs(watermills)
	t.Logf("%v allocations per message, Watermill's %v", own, stock)
	if own != 0 || stock == 0 {
		t.Errorf("%v allocations per message, want none; Watermill's %v", own, stock)
	}
	if got := slot.Freeze(); !got.Called || got.Policy == nil {
		t.Errorf("nothing was noted: %+v", got)
	}
}

// BenchmarkRetryOfASuccess compares Retry with Watermill's for a handler that
// succeeds. In the last part they take turns, so that what else the machine does
// hits both alike: the median of the ratios is what counts.
//
//	go test -run '^$' -bench RetryOfASuccess ./middleware
func BenchmarkRetryOfASuccess(b *testing.B) {
	msg, _ := delivery(b, func() error { return nil })
	ours, watermills := retries()
	for _, way := range []struct {
		name string
		h    message.HandlerFunc
	}{{"suisha", ours}, {"watermill", watermills}} {
		b.Run(way.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = way.h(msg)
			}
		})
	}
	b.Run("both", func(b *testing.B) {
		const turn = 1000
		took := func(h message.HandlerFunc) float64 {
			start := time.Now()
			for range turn {
				_, _ = h(msg)
			}
			return float64(time.Since(start)) / turn
		}
		var own, ratios []float64
		for b.Loop() {
			one := took(ours)
			own, ratios = append(own, one), append(ratios, took(watermills)/one)
		}
		b.ReportMetric(median(own), "suisha-ns")
		b.ReportMetric(median(ratios), "×cheaper")
		b.ReportMetric(0, "ns/op")
	})
}

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return x[len(x)/2]
}
