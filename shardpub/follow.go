package shardpub

import (
	"context"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/suisha-go/suisha/kiroku"
)

// Follow returns up to n of the messages behind a delivered one in its stream, in
// order, so far as they wait in this process already: for a handler that prefers
// several at once. ctx is that of the delivered message. A message that cannot be made
// ends them; it is judged when its turn comes.
//
// They are not deliveries of their own. The first n that settle was told of are
// settled with the delivered message, when that is acked and not parked. All others
// come again, in order, as if nothing had been: after a Nack, a crash, or a settle that
// was not called. Their contexts end with that of the delivered message, and middleware
// does not see them. Other streams of the bucket may be behind them, so a bucket is not
// in order any more, also where Concurrency is 1; streams are.
//
// Only the latest call of Follow for a delivery counts, and of its settle the latest
// call before the Ack: a handler that is called again for the same delivery, by a
// middleware that retries, gets them again, and says anew what is done.
//
// Follow does not block, and is safe for concurrent use. After the Ack or Nack, while
// the bucket goes, and for a context that no Subscriber of this package made it returns
// none.
func Follow(ctx context.Context, n int) (messages []*message.Message, settle func(n int)) {
	h, ok := ctx.Value(deliveryKey{}).(*handing)
	if !ok {
		return nil, func(int) {}
	}
	r := &run{}
	for _, f := range h.bucket.following(h.entry, n) {
		msg, err := h.bucket.message(f.entry.stream, f.event)
		if err != nil {
			break
		}
		newHanding(h.Context, h.bucket, f.entry, 0).on(msg)
		messages = append(messages, msg)
	}
	r.most = len(messages)
	if !h.follow(r) {
		return nil, func(int) {}
	}
	return messages, r.settle
}

// follow has the run count, unless the delivery is over.
func (h *handing) follow(r *run) bool {
	for {
		before := h.run.Load()
		if before == judged {
			return false
		}
		if h.run.CompareAndSwap(before, r) {
			return true
		}
	}
}

// run is some events behind a delivered one.
type run struct {
	most    int
	settled atomic.Int64
}

// judged is the run of a delivery that is over.
var judged = &run{}

func (r *run) settle(n int) { r.settled.Store(int64(min(max(n, 0), r.most))) }

// followed is how many of those behind the event are settled with it, whatever is
// said later. Nothing follows it any more.
func (h *handing) followed() int {
	r := h.run.Swap(judged)
	if r == nil {
		return 0
	}
	return int(r.settled.Load())
}

// follower is an event behind one that is out, as it was when that was asked for.
type follower struct {
	entry *entry
	event kiroku.RecordedEvent
}

// following are events behind one that is out, none once the bucket goes.
func (b *bucket) following(e *entry, n int) []follower {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped || e.settled {
		return nil
	}
	var all []follower
	for _, f := range b.lanes.following(e, n) {
		all = append(all, follower{f, f.event})
	}
	return all
}
