package lease

import (
	"math/rand/v2"
	"time"

	"github.com/suisha-go/suisha/internal/clock"
)

// Rhythm lets the Keepers of a process beat at the same times while nothing is
// urgent, so that their beats share statements. Each process has its own. It is safe
// for concurrent use.
type Rhythm struct{ first time.Time }

// NewRhythm begins somewhere at random, so that processes that start together beat
// apart.
func NewRhythm() *Rhythm { return &Rhythm{first: clock.Now().Add(-rand.N(time.Hour))} }

// next is the time until the last common beat that is no more than a tenth of an
// interval late for somebody who beats now.
func (r *Rhythm) next(now time.Time, renew time.Duration) time.Duration {
	d := renew - clock.Elapsed(r.first, now)%renew
	if d <= renew/10 {
		d += renew
	}
	return d
}
