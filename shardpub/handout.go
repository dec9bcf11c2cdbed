package shardpub

import (
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/suisha-go/suisha/internal/clock"
)

// sent notes that a handler has the event from now on.
func (b *bucket) sent(e *entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e.flight.since, e.flight.waiting = clock.Now(), false
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
	for {
		lost := s.node.identity.losing()
		if !b.sessionBack() || !b.trusted() || !b.enterSend() {
			return false
		}
		sent, again := s.offer(b, msg, lost)
		if !again {
			return sent
		}
	}
}

// offer waits for somebody to take the message. again: the session ended.
func (s *subscription) offer(b *bucket, msg *message.Message, lost <-chan struct{}) (sent, again bool) {
	defer s.senders.Done()
	select {
	case s.out <- msg:
		return true, false
	case <-b.quit:
		return false, false
	case <-lost:
		return false, true
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
