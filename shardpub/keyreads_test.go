package shardpub_test

import (
	"context"
	"math"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/suisha-go/suisha/shardpub"
)

// keyReads are the statements that read keys of the log. Those that a new Node
// practises with read nothing.
func keyReads(s *sent) (n int) {
	for _, c := range s.all() {
		if c.args[0] != int64(math.MaxInt64) {
			n++
		}
	}
	return n
}

// assembled holds the buckets up until so many are there, so that they begin together.
func assembled(buckets int64) func(*shardpub.SubscriberConfig) {
	var here atomic.Int64
	all := make(chan struct{})
	return func(c *shardpub.SubscriberConfig) {
		c.OnAssigned = func(ctx context.Context, _ shardpub.Assignment) {
			if here.Add(1) == buckets {
				close(all)
			}
			select {
			case <-all:
			case <-ctx.Done():
			}
		}
	}
}

// All subscriptions of a process have the same log to drain. One reader reads its keys
// for all of them. No bucket gets full here: one that is reads on from where it was,
// in pages that others have read before.
func TestKeysAreReadOnceForAllSubscriptionsOfAProcess(t *testing.T) {
	t.Parallel()
	const streams, rounds, buckets = 100, 20, 4
	cost := func(subscriptions int) int {
		r := newRig(t)
		for range rounds {
			r.appendRound(orders, streams)
		}
		node, sent := r.sending("../../kiroku/sql/read_keys.sql")
		together := assembled(int64(subscriptions * buckets))
		handled := make([]atomic.Int64, subscriptions)
		for i := range handled {
			sub := r.subscriber(on(node), shards(buckets), together, func(c *shardpub.SubscriberConfig) {
				c.ConsumerGroup += strconv.Itoa(i)
				c.PrefetchCount = streams * rounds
			})
			serve(r.subscribe(sub, orders), func(*message.Message) error { handled[i].Add(1); return nil })
		}
		for i := range handled {
			r.until("all is handled", func() bool { return handled[i].Load() >= streams*rounds })
		}
		return keyReads(sent)
	}
	one, four := cost(1), cost(4)
	t.Logf("%d reads of keys for one subscription, %d for four", one, four)
	if one == 0 || four > 2*one {
		t.Errorf("%d reads of keys for one subscription, %d for four", one, four)
	}
}
