package kiroku_test

import (
	"testing"
	"time"

	"github.com/suisha-go/suisha/kiroku"
)

func BenchmarkRetryPolicyNext(b *testing.B) {
	p := kiroku.RetryPolicy{MaxDeliveries: 8, Delay: time.Second, Multiplier: 2, Jitter: 0.1}
	b.ReportAllocs()
	for b.Loop() {
		p.Next(5, 0.5)
	}
}
