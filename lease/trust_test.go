package lease_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/suisha-go/suisha/lease"
)

func TestTrustCountsFromBeforeTheStatementWasSent(t *testing.T) { // P-22
	t.Parallel()
	sent := time.Now()
	trust := lease.NewTrust(sent, 30*time.Second, 2*time.Second)
	for _, test := range []struct{ after, want time.Duration }{
		{0, 28 * time.Second}, {20 * time.Second, 8 * time.Second}, {28 * time.Second, 0}, {time.Hour, 0},
	} {
		if got := trust.Left(sent.Add(test.after)); got != test.want {
			t.Errorf("after %v: %v left, want %v", test.after, got, test.want)
		}
	}
	if (lease.Trust{}).Left(sent) != 0 {
		t.Error("the zero Trust is believed")
	}
	if lease.NewTrust(sent, time.Second, time.Minute).Left(sent) != 0 {
		t.Error("a margin beyond the TTL leaves trust")
	}
}

func TestSuspendedMachineLosesTrustByItsWallClock(t *testing.T) { // P-22
	t.Parallel()
	sent := time.Now()
	trust := lease.NewTrust(sent, 30*time.Second, 2*time.Second)
	// The monotonic clock stood still, the wall clock went on for a minute.
	woke := sent.Round(0).Add(time.Minute)
	if left := trust.Left(woke); left != 0 {
		t.Errorf("%v left", left)
	}
}

func TestTenureEndsOnceWithItsFirstCause(t *testing.T) { // P-21
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tenure := lease.NewTenure(t.Context(), 3, 1, lease.NewTrust(time.Now(), time.Second, 100*time.Millisecond))
		if !tenure.Trusted() || tenure.Left() != 900*time.Millisecond {
			t.Errorf("trusted %v, left %v", tenure.Trusted(), tenure.Left())
		}
		time.Sleep(900 * time.Millisecond)
		if tenure.Trusted() {
			t.Error("trusted beyond its time")
		}
		tenure.Extend(lease.NewTrust(time.Now(), time.Second, 0))
		if !tenure.Trusted() {
			t.Error("not trusted after a renewal")
		}
		tenure.End(lease.ErrLost)
		tenure.End(lease.ErrReleased)
		if tenure.Trusted() || !errors.Is(context.Cause(tenure.Context()), lease.ErrLost) {
			t.Errorf("trusted %v, cause %v", tenure.Trusted(), context.Cause(tenure.Context()))
		}
	})
}
