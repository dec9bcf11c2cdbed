package shardpub

import (
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
)

// setDeliveryMetadata writes the delivery into the message's metadata.
func setDeliveryMetadata(m *message.Message, d *Delivery) {
	m.Metadata[MetadataSubscription] = d.Subscription
	m.Metadata[MetadataBucket] = strconv.Itoa(d.Bucket)
	m.Metadata[MetadataShards] = strconv.Itoa(d.Shards)
	m.Metadata[MetadataAttempt] = strconv.Itoa(d.Attempt)
	m.Metadata[MetadataPosition] = strconv.FormatInt(d.Position, 10)
	m.Metadata[MetadataStream] = d.Stream
	m.Metadata[MetadataVersion] = strconv.FormatInt(d.Version, 10)
	m.Metadata[MetadataEventID] = d.EventID.String()
	m.Metadata[MetadataEventType] = d.EventType
	m.Metadata[MetadataRecordedAt] = d.RecordedAt.Format(time.RFC3339Nano)
	m.Metadata[MetadataWorker] = d.Worker.String()
}

// delayed is what Watermill's DelayOnError left on a message: how long its next
// delivery is to wait. It grows from one delivery to the next, so it is the one
// thing that a redelivered message keeps of the one before; all else is made
// anew from the event.
type delayed struct{ lasts, until string }

func delayedBy(m *message.Message) delayed {
	return delayed{m.Metadata[delay.DelayedForKey], m.Metadata[delay.DelayedUntilKey]}
}

func (d delayed) set(m *message.Message) {
	if d.lasts != "" {
		m.Metadata[delay.DelayedForKey] = d.lasts
		m.Metadata[delay.DelayedUntilKey] = d.until
	}
}

// instead is the delay asked for, or the policy's: without one, or when the
// handler asked for its own.
func (d delayed) instead(policy time.Duration, handlers bool) time.Duration {
	if v, err := time.ParseDuration(d.lasts); err == nil && !handlers {
		return v
	}
	return policy
}
