package kiroku

import (
	"errors"
	"math"
	"time"
)

// Unlimited lifts a bound where an option says that it may.
const Unlimited = -1

// NoDelay asks for no delay where zero means the default.
const NoDelay = time.Duration(-1)

// Defaults of a RetryPolicy; the first two are keiro's.
const (
	DefaultMaxDeliveries = 5
	DefaultDelay         = time.Second
)

// RetryPolicy says what follows a failed delivery. The zero value is keiro's:
// five deliveries in all, one second apart. Between them the event keeps its
// place: behind it its stream waits, and with Concurrency 1 its whole bucket.
type RetryPolicy struct {
	// MaxDeliveries is how often an event is handed out in all before it is
	// given up. 1 gives it up at its first failure. Zero: 5. [Unlimited]: never.
	MaxDeliveries int
	// Delay is the time before the second delivery. Zero: 1 s. [NoDelay]: none.
	Delay time.Duration
	// MaxDelay caps the delay, jitter included. Zero: no cap below an hour.
	MaxDelay time.Duration
	// Multiplier grows the delay from one delivery to the next. Zero: 1, the
	// delay stays as it is.
	Multiplier float64
	// Jitter moves each delay by up to this share of it, either way: 0 to 1.
	Jitter float64
}

const maxDelay = time.Hour

// WithDefaults replaces zero values by their defaults.
func (p RetryPolicy) WithDefaults() RetryPolicy {
	if p.MaxDeliveries == 0 {
		p.MaxDeliveries = DefaultMaxDeliveries
	}
	if p.Delay == 0 {
		p.Delay = DefaultDelay
	}
	if p.MaxDelay == 0 {
		p.MaxDelay = maxDelay
	}
	if p.Multiplier == 0 {
		p.Multiplier = 1
	}
	return p
}

// Validate returns an [*ArgumentError] for each field that no policy can have,
// joined. It judges the policy as it is given, before defaults.
func (p RetryPolicy) Validate() error {
	var problems []error
	refuse := func(wrong bool, field, problem string) {
		if wrong {
			problems = append(problems, &ArgumentError{Argument: field, Problem: problem})
		}
	}
	refuse(p.MaxDeliveries < Unlimited, "MaxDeliveries", "must be at least 1, 0 for the default, or Unlimited")
	refuse(p.Delay < 0 && p.Delay != NoDelay, "Delay", "must not be negative, except for NoDelay")
	refuse(p.MaxDelay < 0, "MaxDelay", "must not be negative")
	refuse(p.Multiplier != 0 && !(p.Multiplier >= 1), "Multiplier", "must be at least 1, or 0 for the default")
	refuse(!(p.Jitter >= 0 && p.Jitter <= 1), "Jitter", "must be between 0 and 1")
	return errors.Join(problems...)
}

// Next says what follows when delivery number attempt (zero-based) failed:
// another delivery after a delay, or, with ok false, none. random is in [0, 1)
// and places the jitter. The delay is never negative and never above MaxDelay.
func (p RetryPolicy) Next(attempt int, random float64) (delay time.Duration, ok bool) {
	p = p.WithDefaults()
	if p.MaxDeliveries != Unlimited && attempt >= p.MaxDeliveries-1 {
		return 0, false
	}
	if p.Delay < 0 {
		return 0, true
	}
	d := float64(p.Delay) * math.Pow(p.Multiplier, float64(attempt))
	d *= 1 + p.Jitter*(2*random-1)
	if ceiling := float64(p.MaxDelay); !(d < ceiling) { // also when d overflowed
		d = ceiling
	}
	return max(time.Duration(d), 0), true
}
