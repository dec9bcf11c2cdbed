package shardpub

import (
	"github.com/ThreeDotsLabs/watermill"
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

// log tells people, too: of dead letters as errors, of buckets as information.
func (e Event) log(l watermill.LoggerAdapter) {
	if !listens(l) {
		return
	}
	fields := watermill.LogFields{"subscription": e.Subscription, "bucket": e.Bucket}
	switch e.Kind {
	case BucketAssigned:
		l.Info("Bucket assigned", fields.Add(watermill.LogFields{"position": e.Position}))
	case BucketRevoked:
		l.Info("Bucket revoked", fields.Add(watermill.LogFields{"reason": e.Reason}))
	case Retried:
		l.Debug("Event will be delivered again", fields.Add(e.which()))
	case DeadLettered:
		l.Error("Event became a dead letter", e.Err, fields.Add(watermill.LogFields{"stream": e.Stream, "position": e.Position, "deliveries": e.Attempt + 1}))
	case BackedOff:
		l.Error("Bucket backs off: events fail one after another", e.Err, fields.Add(e.which()))
	}
}

func (e Event) which() watermill.LogFields {
	return watermill.LogFields{"stream": e.Stream, "position": e.Position, "attempt": e.Attempt}
}

// listens tells whether a logger does anything with what it is told. What is said
// often is not even made for one that does not.
func listens(l watermill.LoggerAdapter) bool {
	switch l.(type) {
	case watermill.NopLogger, *watermill.NopLogger:
		return false
	}
	return true
}
