package kiroku_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/suisha-go/suisha/kiroku"
)

// S-46, kiroku.md 8.1: five deliveries in all, one second apart.
func TestTheZeroRetryPolicyIsKeiros(t *testing.T) {
	t.Parallel()
	var p kiroku.RetryPolicy
	for attempt := range 4 {
		if d, ok := p.Next(attempt, 0.5); !ok || d != time.Second {
			t.Errorf("after attempt %d: %v, %v", attempt, d, ok)
		}
	}
	if d, ok := p.Next(4, 0.5); ok {
		t.Errorf("after the fifth: %v", d)
	}
}

func TestRetryPolicies(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy  kiroku.RetryPolicy
		attempt int
		random  float64
		want    time.Duration
		ok      bool
	}{
		"one delivery gives up at once": {kiroku.RetryPolicy{MaxDeliveries: 1}, 0, 0, 0, false},
		"two allow one more":            {kiroku.RetryPolicy{MaxDeliveries: 2}, 0, 0, time.Second, true},
		"unlimited":                     {kiroku.RetryPolicy{MaxDeliveries: kiroku.Unlimited}, math.MaxInt, 0, time.Second, true},
		"no delay":                      {kiroku.RetryPolicy{Delay: kiroku.NoDelay}, 3, 0, 0, true},
		"grows":                         {kiroku.RetryPolicy{Delay: 100 * time.Millisecond, Multiplier: 2}, 3, 0, 800 * time.Millisecond, true},
		"up to its cap":                 {kiroku.RetryPolicy{Multiplier: 10, MaxDelay: time.Minute}, 3, 0, time.Minute, true},
		"also when it overflows":        {kiroku.RetryPolicy{MaxDeliveries: kiroku.Unlimited, Multiplier: 10, MaxDelay: time.Minute}, 1 << 40, 0, time.Minute, true},
		"an hour if nothing is said":    {kiroku.RetryPolicy{Multiplier: 1e6}, 3, 0, time.Hour, true},
		"jitter down":                   {kiroku.RetryPolicy{Jitter: 0.5}, 0, 0, 500 * time.Millisecond, true},
		"jitter in the middle":          {kiroku.RetryPolicy{Jitter: 0.5}, 0, 0.5, time.Second, true},
		"jitter is capped":              {kiroku.RetryPolicy{Jitter: 1, MaxDelay: time.Second}, 0, 0.99, time.Second, true},
	} {
		if got, ok := c.policy.Next(c.attempt, c.random); got != c.want || ok != c.ok {
			t.Errorf("%s: %v, %v, want %v, %v", name, got, ok, c.want, c.ok)
		}
	}
}

func TestRetryPolicyNamesEachWrongField(t *testing.T) {
	t.Parallel()
	if err := (kiroku.RetryPolicy{}).Validate(); err != nil {
		t.Error(err)
	}
	if err := (kiroku.RetryPolicy{MaxDeliveries: kiroku.Unlimited, Delay: kiroku.NoDelay, Multiplier: 1, Jitter: 1}).Validate(); err != nil {
		t.Error(err)
	}
	wrong := kiroku.RetryPolicy{MaxDeliveries: -2, Delay: -2, MaxDelay: -1, Multiplier: 0.5, Jitter: math.NaN()}
	err := wrong.Validate()
	if !errors.Is(err, kiroku.ErrInvalid) {
		t.Fatal(err)
	}
	var fields []string
	for _, err := range err.(interface{ Unwrap() []error }).Unwrap() {
		fields = append(fields, wantError[*kiroku.ArgumentError](t, err).Argument)
	}
	if len(fields) != 5 {
		t.Errorf("%v", fields)
	}
}

func FuzzRetryPolicyStaysInItsBounds(f *testing.F) {
	f.Add(5, int64(time.Second), int64(0), 1.0, 0.0, 0, 0.5)
	f.Add(-1, int64(-1), int64(time.Minute), 2.0, 1.0, 1000, 0.999)
	f.Fuzz(func(t *testing.T, deliveries int, delay, maxDelay int64, multiplier, jitter float64, attempt int, random float64) {
		p := kiroku.RetryPolicy{
			MaxDeliveries: deliveries, Delay: time.Duration(delay), MaxDelay: time.Duration(maxDelay), Multiplier: multiplier, Jitter: jitter,
		}
		d, ok := p.Next(attempt, random)
		limit := max(p.WithDefaults().MaxDelay, 0)
		if d < 0 || d > limit {
			t.Errorf("%v is not in 0 to %v", d, limit)
		}
		if n := p.WithDefaults().MaxDeliveries; ok && n > 0 && attempt >= n-1 || !ok && n == kiroku.Unlimited {
			t.Errorf("ok %v after attempt %d of %d", ok, attempt, n)
		}
	})
}

func FuzzBucketOfIsTheFloorModulus(f *testing.F) {
	f.Add(int64(-1159030545924783614), 8)
	f.Add(int64(math.MinInt64), 1)
	f.Fuzz(func(t *testing.T, hash int64, n int) {
		if n < 1 {
			t.Skip()
		}
		b := kiroku.BucketOf(hash, n)
		if b < 0 || b >= n {
			t.Fatalf("bucket %d of %d", b, n)
		}
		if (hash-int64(b))%int64(n) != 0 && hash >= math.MinInt64+int64(b) {
			t.Fatalf("%d is not congruent to %d modulo %d", hash, b, n)
		}
		// A group of twice the size splits each bucket in two.
		if n <= math.MaxInt/2 {
			if twice := kiroku.BucketOf(hash, 2*n); twice != b && twice != b+n {
				t.Fatalf("bucket %d of %d becomes %d of %d", b, n, twice, 2*n)
			}
		}
	})
}
