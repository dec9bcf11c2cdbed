package lease

import (
	"time"

	"github.com/suisha-go/suisha/internal/clock"
)

// Trust is how long a lease may be believed without word from the database:
// from before the renewing statement was sent, for the TTL less a margin
// (P-22). A slow answer does not extend it. The zero Trust is used up.
type Trust struct {
	sent time.Time
	span time.Duration
}

// NewTrust believes a lease renewed by a statement sent at that time.
func NewTrust(sent time.Time, ttl, margin time.Duration) Trust {
	return Trust{sent: sent, span: max(ttl-margin, 0)}
}

// after reports whether it was renewed by a statement sent after t.
func (t Trust) after(other time.Time) bool { return t.sent.After(other) }

// Left is how much trust is left at now, at least zero.
func (t Trust) Left(now time.Time) time.Duration {
	return max(t.span-clock.Elapsed(t.sent, now), 0)
}
