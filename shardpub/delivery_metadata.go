package shardpub

import (
	"encoding/hex"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
)

// setMetadata writes the delivery into the message's metadata. What differs from event
// to event is cut from one text.
func (h *handing) setMetadata(m message.Metadata) {
	b, event := h.bucket, &h.entry.event
	var room [128]byte
	text := appendUUID(room[:0], event.ID)
	id := len(text)
	text = strconv.AppendInt(text, int64(event.Position), 10)
	position := len(text)
	text = strconv.AppendInt(text, event.Version, 10)
	version := len(text)
	all := string(event.RecordedAt.AppendFormat(text, time.RFC3339Nano))
	m[MetadataSubscription] = b.sub.name
	m[MetadataBucket] = strconv.Itoa(b.number)
	m[MetadataShards] = strconv.Itoa(b.sub.cfg.Shards)
	m[MetadataAttempt] = strconv.Itoa(h.attempt)
	m[MetadataPosition] = all[id:position]
	m[MetadataStream] = h.entry.stream
	m[MetadataVersion] = all[position:version]
	m[MetadataEventID] = all[:id]
	m[MetadataEventType] = event.Type
	m[MetadataRecordedAt] = all[version:]
	m[MetadataWorker] = b.sub.workerText
}

// appendUUID is what [uuid.UUID.String] returns, without a string.
func appendUUID(text []byte, id uuid.UUID) []byte {
	for i, part := range [][]byte{id[:4], id[4:6], id[6:8], id[8:10], id[10:]} {
		if i > 0 {
			text = append(text, '-')
		}
		text = hex.AppendEncode(text, part)
	}
	return text
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
