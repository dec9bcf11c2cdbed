package shardpub

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/suisha-go/suisha/internal/clock"
	"github.com/suisha-go/suisha/internal/outcome"
	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/lease"
)

// work delivers events of the bucket, one after another, until there is none.
func (b *bucket) work() {
	for {
		e, ok := b.take()
		if !ok {
			return
		}
		if b.handle(e) {
			b.settled(e)
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
}

// handle delivers one event until it is settled, and reports whether it was:
// false when the bucket goes.
func (b *bucket) handle(e *entry) bool {
	for r := (rounds{deliveries: 1}); ; r.deliveries++ {
		v, counted, ok := b.once(e, &r)
		if !ok {
			return false
		}
		switch v.action {
		case actDone:
			b.succeeded()
			return true
		case actRetry:
			b.observe(Event{Kind: Retried, Stream: e.stream, Position: e.event.Position, Attempt: r.attempt, Err: v.err})
			if !b.pause(e, v.delay) {
				return false
			}
		case actPark:
			parked, again := b.park(e, v, r.deliveries)
			if parked || !again {
				return parked
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
	msg, err := b.message(e)
	if err != nil {
		return judgeInvalid(err, r.attempt), true, true
	}
	slot := outcome.NewSlot(func() error { return context.Cause(b.base) })
	d := b.delivery(e, r.attempt)
	ctx, cancel := messageContext(b.base, d, slot)
	defer cancel(nil)
	setDeliveryMetadata(msg, d)
	r.delay.set(msg)
	msg.SetContext(ctx)
	acked, ok := b.sub.handOut(b, msg, func() (stop func() bool) {
		b.sent(e)
		return endAfter(b.sub.cfg.HandlerTimeout, cancel)
	})
	if !ok || !b.trusted() {
		return verdict{}, false, false
	}
	o := slot.Freeze()
	if !acked && b.base.Err() != nil {
		return verdict{}, false, false
	}
	v = judge(acked, o, b.sub.cfg.Retry, r.attempt, rand.Float64())
	counted = !b.sub.node.failing()
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
// message what it likes. A panic of the Unmarshaler is an event that it cannot
// read.
func (b *bucket) message(e *entry) (msg *message.Message, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("unmarshaler panicked: %v", p)
		}
	}()
	ev := e.event
	ev.Data = bytes.Clone(ev.Data)
	return b.sub.cfg.Unmarshaler.Unmarshal(kiroku.CategoryOf(e.stream), e.stream, ev)
}

// outageDelay is the least time between deliveries that do not count: no budget
// ends them, and a policy may ask for no delay.
const outageDelay = 250 * time.Millisecond

func (b *bucket) delivery(e *entry, attempt int) *Delivery {
	b.mu.Lock()
	if f := b.out[e]; f != nil {
		f.attempt = attempt
	}
	b.mu.Unlock()
	return &Delivery{
		Subscription: b.sub.name,
		Category:     b.sub.topic,
		Stream:       e.stream,
		Bucket:       b.number,
		Shards:       b.sub.cfg.Shards,
		Attempt:      attempt,
		Position:     int64(e.event.Position),
		Version:      e.event.Version,
		EventID:      e.event.ID,
		EventType:    e.event.Type,
		RecordedAt:   e.event.RecordedAt,
		Worker:       b.sub.worker,
	}
}

// sent notes that a handler has the event from now on.
func (b *bucket) sent(e *entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if f := b.out[e]; f != nil {
		f.since, f.waiting = clock.Now(), false
	}
}

// handOut sends a message and waits for its Ack or Nack; sent is called in
// between, and what it returns at the end. ok is false when it was not sent, or
// will not be answered, because the bucket goes.
func (s *subscription) handOut(b *bucket, msg *message.Message, sent func() (stop func() bool)) (acked, ok bool) {
	if s.inFlight != nil {
		select {
		case s.inFlight <- struct{}{}:
			defer func() { <-s.inFlight }()
		case <-b.quit:
			return false, false
		}
	}
	if !s.send(b, msg) {
		return false, false
	}
	defer sent()()
	select {
	case <-msg.Acked():
		return true, true
	case <-msg.Nacked():
		return false, true
	case <-s.gone:
		return false, false
	}
}

// send offers the message until it is taken or the bucket stops. The check
// before keeps a message from going out long after the stop.
func (s *subscription) send(b *bucket, msg *message.Message) bool {
	if !b.trusted() {
		return false
	}
	if !b.enterSend() {
		return false
	}
	defer s.senders.Done()
	select {
	case s.out <- msg:
		return true
	case <-b.quit:
		return false
	}
}

// enterSend registers a sender, so that the channel is closed after the last.
func (b *bucket) enterSend() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return false
	}
	b.sub.senders.Add(1)
	return true
}

// pause waits between two deliveries; false when the bucket goes.
func (b *bucket) pause(e *entry, d time.Duration) bool {
	b.mu.Lock()
	if f := b.out[e]; f != nil {
		f.waiting = true
	}
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

// Backing off before more events are given up (P-38).
const (
	minBackOff = time.Second
	maxBackOff = time.Minute
)

// backOff is how long a bucket waits before it gives up another event after
// streak events in a row exhausted their budget.
func backOff(streak int) time.Duration {
	if streak <= 0 {
		return 0
	}
	return min(minBackOff<<min(streak-1, 10), maxBackOff)
}

// holdBack waits before an exhausted event is parked, if the one before it was
// exhausted too. False when the bucket goes.
func (b *bucket) holdBack(e *entry, v verdict) bool {
	b.mu.Lock()
	wait := backOff(b.streak)
	if wait > 0 {
		b.until = clock.Now().Add(wait)
	}
	b.mu.Unlock()
	if wait == 0 {
		return true
	}
	b.observe(Event{Kind: BackedOff, Stream: e.stream, Position: e.event.Position, Err: v.err})
	return b.pause(e, wait)
}

// park writes the dead letter. parked: it is settled. again: it could not be
// written and the event is to be delivered again first (P-37).
func (b *bucket) park(e *entry, v verdict, deliveries int) (parked, again bool) {
	if v.exhausted && !b.holdBack(e, v) {
		return false, false
	}
	if !b.trusted() {
		return false, false
	}
	written, err := b.sub.node.writeDeadLetter(b, e, v.reason, deliveries)
	switch {
	case err != nil:
		b.failed("write dead letter", err)
		return false, b.pause(e, deadLetterRetry)
	case !written:
		b.tenure.End(lease.ErrLost)
		b.sub.wake()
		return false, false
	}
	b.mu.Lock()
	b.lastErr = nil
	if b.streak++; !v.exhausted {
		b.streak = 0
	}
	b.mu.Unlock()
	b.observe(Event{Kind: DeadLettered, Stream: e.stream, Position: e.event.Position, Attempt: deliveries - 1, Err: v.err})
	return true, false
}

// deadLetterRetry is the time after a failed write until the event is delivered again.
const deadLetterRetry = time.Second

func (b *bucket) observe(ev Event) {
	ev.Subscription, ev.Worker, ev.Bucket = b.sub.name, b.sub.worker, b.number
	b.sub.node.observe(ev)
}

// judgeInvalid parks an event that cannot be made into a message.
func judgeInvalid(err error, attempt int) verdict {
	reason := kiroku.Reason{Kind: kiroku.InvalidPayload, Detail: err.Error()}
	return verdict{action: actPark, reason: withAttempts(reason, err, attempt), err: err}
}
