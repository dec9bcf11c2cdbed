package lease_test

import (
	"testing"
	"time"

	"github.com/suisha-go/suisha/lease"
)

// Trust is asked for before every delivery and again after it.
func BenchmarkTrust(b *testing.B) {
	sent := time.Now()
	trust, now := lease.NewTrust(sent, 30*time.Second, 2*time.Second), sent.Add(time.Second)
	b.ReportAllocs()
	for b.Loop() {
		trust.Left(now)
	}
}
