package shardpub

import (
	"github.com/google/uuid"

	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/lease"
)

// EventKind tells the kinds of Event apart.
type EventKind string

// What NodeConfig.Observe hears of.
const (
	// BucketAssigned: this process got a bucket.
	BucketAssigned EventKind = "bucket_assigned"
	// BucketRevoked: it gave one back, or lost it; Reason says which.
	BucketRevoked EventKind = "bucket_revoked"
	// Retried: a delivery failed and will be tried again.
	Retried EventKind = "retried"
	// DeadLettered: an event was given up and recorded.
	DeadLettered EventKind = "dead_lettered"
	// BackedOff: a bucket waits before it gives up more events.
	BackedOff EventKind = "backed_off"
)

// Event is something that happened in a Node. Fields that say nothing for its
// kind are zero.
type Event struct {
	Kind         EventKind
	Subscription string
	Worker       uuid.UUID
	Bucket       int
	Reason       lease.Reason
	Stream       string
	Position     kiroku.Position
	Attempt      int
	// Err is what the handler said, as far as something in the chain marked it.
	Err error
}
