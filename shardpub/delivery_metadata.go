package shardpub

import (
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
)

// setDeliveryMetadata writes the delivery into the message's metadata; worker is the
// text of its Worker. What differs from event to event is cut from one text.
func setDeliveryMetadata(m *message.Message, d *Delivery, worker string) {
	var room [128]byte
	text := append(room[:0], d.EventID.String()...)
	id := len(text)
	text = strconv.AppendInt(text, d.Position, 10)
	position := len(text)
	text = strconv.AppendInt(text, d.Version, 10)
	version := len(text)
	all := string(d.RecordedAt.AppendFormat(text, time.RFC3339Nano))
	m.Metadata[MetadataSubscription] = d.Subscription
	m.Metadata[MetadataBucket] = strconv.Itoa(d.Bucket)
	m.Metadata[MetadataShards] = strconv.Itoa(d.Shards)
	m.Metadata[MetadataAttempt] = strconv.Itoa(d.Attempt)
	m.Metadata[MetadataPosition] = all[id:position]
	m.Metadata[MetadataStream] = d.Stream
	m.Metadata[MetadataVersion] = all[position:version]
	m.Metadata[MetadataEventID] = all[:id]
	m.Metadata[MetadataEventType] = d.EventType
	m.Metadata[MetadataRecordedAt] = all[version:]
	m.Metadata[MetadataWorker] = worker
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
