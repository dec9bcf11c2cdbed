package shardpub

import (
	"context"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Follow returns up to n of the messages behind a delivered one in its stream, in
// order, so far as they wait in this process already: for a handler that prefers
// several at once. ctx is that of the delivered message. A message that cannot be made
// ends them; it is judged when its turn comes.
//
// They are not deliveries of their own. Of those that settle was told of, the first
// n, each is settled with the delivered message when that is acked. All others come
// again, the next of them first, as if nothing had been: after a Nack, a crash, or a
// settle that was not called. Their contexts end with that of the delivered message.
// Middleware has not seen them. settle must be called before the message is acked,
// later calls do nothing; of several calls the last counts.
//
// Only the first call for a delivery returns any. Follow does not block, and is safe
// for concurrent use. For a context that no Subscriber of this package made it returns
// none.
func Follow(ctx context.Context, n int) (messages []*message.Message, settle func(n int)) {
	h, ok := ctx.Value(deliveryKey{}).(*handing)
	if !ok || n < 1 {
		return nil, func(int) {}
	}
	r := &run{}
	if !h.run.CompareAndSwap(nil, r) {
		return nil, func(int) {}
	}
	for _, e := range h.bucket.following(h.entry, n) {
		msg, err := h.bucket.message(e)
		if err != nil {
			break
		}
		newHanding(h.Context, h.bucket, e, 0).on(msg)
		messages = append(messages, msg)
	}
	r.most = len(messages)
	return messages, r.settle
}

// run is some events behind a delivered one.
type run struct {
	mu      sync.Mutex // guards what follows
	most    int
	settled int
	ended   bool
}

func (r *run) settle(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended {
		r.settled = min(max(n, 0), r.most)
	}
}

// followed is how many of those behind the event are settled with it, whatever is
// said later.
func (h *handing) followed() int {
	r := h.run.Load()
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	return r.settled
}

// following are events behind one that is out, none once the bucket goes.
func (b *bucket) following(e *entry, n int) []*entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return nil
	}
	return b.lanes.following(e, n)
}
