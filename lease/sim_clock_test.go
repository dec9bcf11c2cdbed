package lease_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/suisha-go/suisha/internal/clock"
)

// theClock is the one of all workers of a simulation: they share a process.
var theClock struct {
	mu    sync.Mutex
	steps time.Duration // of the wall
	slept time.Duration // while which the monotonic clock stood still
	since time.Time     // it stands still since, zero when it runs
}

func readClock() time.Time {
	theClock.mu.Lock()
	defer theClock.mu.Unlock()
	now := time.Now()
	slept := theClock.slept
	if !theClock.since.IsZero() {
		slept += now.Sub(theClock.since)
	}
	return stepped(now, theClock.steps, slept)
}

// useSteppingClock has the library read a clock that can step and sleep: it has two
// readings, which a bubble's own has not.
func useSteppingClock(t *testing.T) {
	t.Helper()
	clock.Use(readClock)
	t.Cleanup(func() { clock.Use(nil) })
}

// stepWall steps the wall clock, and leaves the monotonic one alone.
func stepWall(d time.Duration) {
	theClock.mu.Lock()
	defer theClock.mu.Unlock()
	theClock.steps += d
}

// sleepClock has the monotonic clock stand still, as on a machine that is
// suspended; wakeClock has it go on.
func sleepClock() {
	theClock.mu.Lock()
	defer theClock.mu.Unlock()
	if theClock.since.IsZero() {
		theClock.since = time.Now()
	}
}

func wakeClock() {
	theClock.mu.Lock()
	defer theClock.mu.Unlock()
	if !theClock.since.IsZero() {
		theClock.slept += time.Since(theClock.since)
		theClock.since = time.Time{}
	}
}

// resetClock makes the clock a right one.
func resetClock() {
	theClock.mu.Lock()
	defer theClock.mu.Unlock()
	theClock.steps, theClock.slept, theClock.since = 0, 0, time.Time{}
}

// instant is what a time.Time is made of. With a monotonic reading, the first
// word holds a flag, 33 bits of seconds since 1885 and 30 of nanoseconds, and the
// second the monotonic reading.
type instant struct {
	wall uint64
	ext  int64
	loc  *time.Location
}

var (
	year1885 = time.Date(1885, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	year2000 = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
)

// stepped is t by a wall clock that is off by d and a monotonic one that stood still
// for a time. Package time has no way to say that.
func stepped(t time.Time, d, still time.Duration) time.Time {
	wall := t.Add(d).Round(0)
	out := instant{
		wall: 1<<63 | uint64(wall.Unix()-year1885)<<30 | uint64(wall.Nanosecond()),
		ext:  int64(t.Sub(year2000)-still) + 1,
	}
	return *(*time.Time)(unsafe.Pointer(&out))
}

func TestSteppedClockStepsTheWallAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		now := stepped(time.Now(), 0, 0)
		if !now.Equal(time.Now()) {
			t.Errorf("%v without a step is %v", time.Now(), now)
		}
		for _, d := range []time.Duration{time.Hour, -time.Hour, -1300 * time.Millisecond} {
			time.Sleep(time.Second)
			later := stepped(time.Now(), d, 0)
			if mono, wall := later.Sub(now), later.Round(0).Sub(now.Round(0)); mono != time.Second || wall != time.Second+d {
				t.Errorf("a second and a step of %v move the monotonic clock by %v and the wall by %v", d, mono, wall)
			}
			now = stepped(time.Now(), 0, 0)
		}
	})
}
