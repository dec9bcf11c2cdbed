package kiroku

import (
	"strconv"
	"strings"
)

// Notification is what an append says on [Channel]: one per stream. It is a
// reason to read, never data: it gets lost while nobody listens, and a link
// announces a stream to which no event was added.
type Notification struct {
	Stream            string
	StreamID, Version int64
}

// NotificationError: a payload is not what kiroku's triggers send.
type NotificationError struct{ Payload string }

func (e *NotificationError) Error() string {
	return "kiroku: not a notification of an append: " + quoteShort(e.Payload)
}

// ParseNotification reads a payload, from the right, because a stream's name
// may hold commas. It fails with a [*NotificationError].
func ParseNotification(payload string) (Notification, error) {
	rest, versionText, ok := cutLast(payload)
	if !ok {
		return Notification{}, &NotificationError{Payload: payload}
	}
	name, idText, ok := cutLast(rest)
	if !ok {
		return Notification{}, &NotificationError{Payload: payload}
	}
	id, err := strconv.ParseInt(idText, 10, 64)
	if err != nil {
		return Notification{}, &NotificationError{Payload: payload}
	}
	version, err := strconv.ParseInt(versionText, 10, 64)
	if err != nil {
		return Notification{}, &NotificationError{Payload: payload}
	}
	return Notification{Stream: name, StreamID: id, Version: version}, nil
}

func cutLast(s string) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, ',')
	if i < 0 {
		return "", "", false
	}
	return s[:i], s[i+1:], true
}
