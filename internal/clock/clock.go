// Package clock is the one place where lease and shardpub read the local
// clock. The local clock judges trust and intervals, never expiry: that is
// the database's.
package clock

import (
	"sync/atomic"
	"time"
)

// source is what Now reads instead of time.Now, if anything.
var source atomic.Pointer[func() time.Time]

// Now is time.Now, unless Shift or Use say otherwise. It carries a monotonic
// reading.
func Now() time.Time {
	if read := source.Load(); read != nil {
		return (*read)()
	}
	return time.Now()
}

// Shift moves Now by d for the whole process: a host whose wall clock is wrong.
func Shift(d time.Duration) {
	Use(func() time.Time { return time.Now().Add(d) })
}

// Use has Now read another clock, for the whole process; nil is time.Now. It is
// for simulations of clocks that step.
func Use(read func() time.Time) {
	if read == nil {
		source.Store(nil)
		return
	}
	source.Store(&read)
}

// Elapsed is how long ago t was: the larger of the monotonic and the wall
// difference, because the monotonic clock stands still while a machine is
// suspended. It is never negative.
func Elapsed(t, now time.Time) time.Duration {
	return max(now.Sub(t), now.Round(0).Sub(t.Round(0)), 0)
}

// Until is how long until a deadline that this process set, such as a
// context's. It is measured on the monotonic clock and is not moved by Shift.
func Until(deadline time.Time) time.Duration { return time.Until(deadline) }
