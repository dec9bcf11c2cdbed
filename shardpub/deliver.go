package shardpub

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/suisha-go/suisha/kiroku"
)

// work delivers events of the bucket, one after another, until there is none.
func (b *bucket) work() {
	for {
		e, ok := b.take()
		if !ok {
			return
		}
		if along, ok := b.handle(e); ok {
			b.settled(e, along)
		} else {
			b.left(e)
		}
	}
}

// rounds counts the deliveries of one event, here and nowhere else (P-36).
type rounds struct {
	attempt    int     // failed deliveries that count
	deliveries int     // all of them, the present one included
	delay      delayed // what the last one asked for
	along      int     // events behind it that are settled with it
}

// handle delivers one event until it is settled, and reports whether it was, false
// when the bucket goes, and how many of those behind it are with it.
func (b *bucket) handle(e *entry) (along int, ok bool) {
	for r := (rounds{deliveries: 1}); ; r.deliveries++ {
		v, counted, ok := b.once(e, &r)
		if !ok {
			return 0, false
		}
		switch v.action {
		case actDone:
			b.succeeded()
			return r.along, true
		case actRetry:
			b.observe(Event{Kind: Retried, Stream: e.stream, Position: e.event.Position, Attempt: r.attempt, Err: v.err})
			if !b.pause(e, v.delay) {
				return 0, false
			}
		case actPark:
			parked, again := b.park(e, v, r.deliveries)
			if parked || !again {
				return 0, parked
			}
		}
		if counted {
			r.attempt++
		}
	}
}

// once is one delivery: hand out, wait for the verdict, judge. ok is false when
// the bucket goes and the delivery counts for nothing (P-35).
func (b *bucket) once(e *entry, r *rounds) (v verdict, counted, ok bool) {
	msg, err := b.message(e.stream, e.event)
	if err != nil {
		return judgeInvalid(err, r.attempt), true, true
	}
	// It ends when the delivery is settled, at the drain deadline, or when the bucket
	// is lost, but never with the Subscribe context, whose values it has.
	ctx, cancel := context.WithCancelCause(b.base)
	defer cancel(nil)
	if r.attempt > 0 {
		b.failedBefore(e, r.attempt)
	}
	h := newHanding(ctx, b, e, r.attempt)
	h.on(msg)
	r.delay.set(msg)
	acked, ok := b.sub.handOut(b, msg, func() (stop func() bool) {
		b.sent(e)
		return endAfter(b.sub.cfg.HandlerTimeout, cancel)
	})
	if !ok || !b.trusted() {
		return verdict{}, false, false
	}
	o := h.slot.Freeze()
	r.along = h.followed()
	if !acked && b.base.Err() != nil {
		return verdict{}, false, false
	}
	v = judge(acked, o, b.sub.cfg.Retry, r.attempt, rand.Float64())
	counted = !b.sub.node.last.isBad()
	if v.exhausted && !counted {
		v = verdict{action: actRetry, delay: b.sub.cfg.Retry.Delay, err: o.Err} // the last straw does not count
	}
	if v.action == actRetry {
		r.delay = delayedBy(msg)
		v.delay = r.delay.instead(v.delay, o.HasAfter)
	}
	if v.action == actRetry && !counted {
		v.delay = max(v.delay, outageDelay)
	}
	return v, counted, true
}

// message makes the event anew, with bytes of its own: a handler may do with its
// message what it likes. DefaultMarshaler leaves the metadata as it is. A panic of the
// Unmarshaler is an event that it cannot read.
func (b *bucket) message(stream string, ev kiroku.RecordedEvent) (msg *message.Message, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("unmarshaler panicked: %v", p)
		}
	}()
	ev.Data = bytes.Clone(ev.Data)
	if _, ours := b.sub.cfg.Unmarshaler.(DefaultMarshaler); !ours {
		ev.Metadata = bytes.Clone(ev.Metadata)
	}
	return b.sub.cfg.Unmarshaler.Unmarshal(kiroku.CategoryOf(stream), stream, ev)
}

// outageDelay is the least time between deliveries that do not count: no budget
// ends them, and a policy may ask for no delay.
const outageDelay = 250 * time.Millisecond

// failedBefore notes how many deliveries of the event failed before the present one.
func (b *bucket) failedBefore(e *entry, attempt int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e.flight.attempt = attempt
}

// judgeInvalid parks an event that cannot be made into a message.
func judgeInvalid(err error, attempt int) verdict {
	reason := kiroku.Reason{Kind: kiroku.InvalidPayload, Detail: err.Error()}
	return verdict{action: actPark, reason: withAttempts(reason, err, attempt), err: err}
}

// pause waits between two deliveries; false when the bucket goes.
func (b *bucket) pause(e *entry, d time.Duration) bool {
	b.mu.Lock()
	e.flight.waiting = true
	b.mu.Unlock()
	if d <= 0 {
		return !b.isStopped()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-b.quit:
		return false
	}
}

func (b *bucket) isStopped() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stopped
}

func (b *bucket) succeeded() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.streak, b.until, b.lastErr = 0, time.Time{}, nil
}
