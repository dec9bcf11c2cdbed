package shardpub_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/middleware"
	"github.com/suisha-go/suisha/shardpub"
)

// versionsOf are those of a delivered message and of what follows it.
func versionsOf(t *testing.T, msg *message.Message, behind []*message.Message) (all []int64) {
	t.Helper()
	for _, m := range append([]*message.Message{msg}, behind...) {
		all = append(all, deliveryOf(t, m).Version)
	}
	return all
}

// The first of those that follow are settled with the message, the others come again.
func TestFollowersAreSettledAsFarAsSettleWasTold(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.subscriber(shards(1), retry(shardpub.RetryPolicy{MaxDeliveries: 9}))
	last := r.appendTo("orders-1", 8)
	ch := r.subscribe(sub, "orders")
	take := func(n int, want ...int64) (*message.Message, []*message.Message, func(int)) {
		t.Helper()
		msg := receive(t, ch)
		behind, settle := shardpub.Follow(msg.Context(), n)
		wantEqual(t, versionsOf(t, msg, behind), want)
		return msg, behind, settle
	}
	first := receive(t, ch)
	r.until("all wait", func() bool { return queued(sub) == 8 })
	behind, settle := shardpub.Follow(first.Context(), 3)
	wantEqual(t, versionsOf(t, first, behind), []int64{1, 2, 3, 4})
	behind[0].Payload[0] = 'X' // it is the handler's
	settle(2)
	first.Nack() // nothing is settled

	msg, behind, settle := take(99, 1, 2, 3, 4, 5, 6, 7, 8)
	if string(behind[0].Payload[:1]) != "{" {
		t.Errorf("payload %s", behind[0].Payload)
	}
	settle(7)
	settle(2) // the last word counts
	msg.Ack()

	msg, behind, _ = take(1, 4, 5)
	if context.Cause(behind[0].Context()) != nil {
		t.Errorf("%v before the end", context.Cause(behind[0].Context()))
	}
	msg.Ack() // nothing was said of 5
	ends(t, "the context of one that follows", behind[0].Context().Done())

	// A middleware that retries calls the handler again: what it said first is no more.
	msg, _, settle = take(2, 5, 6, 7)
	settle(2)
	behind, again := shardpub.Follow(msg.Context(), 1)
	wantEqual(t, versionsOf(t, msg, behind), []int64{5, 6})
	settle(2)
	msg.Ack()
	ends(t, "the context of one that follows", behind[0].Context().Done())
	again(1) // too late

	msg, _, settle = take(5, 6, 7, 8)
	settle(99)
	msg.Ack()
	r.reaches(last)
	if behind, _ := shardpub.Follow(msg.Context(), 1); behind != nil {
		t.Errorf("%v after the Ack", versionsOf(t, msg, behind))
	}
}

// What cannot be made into a message ends those that follow, and is judged in its turn.
func TestFollowersEndBeforeOneThatCannotBeMade(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.subscriber(shards(1), func(c *shardpub.SubscriberConfig) { c.Unmarshaler = notThird{} })
	last := r.appendTo("orders-1", 4)
	ch := r.subscribe(sub, "orders")
	msg := receive(t, ch)
	r.until("all wait", func() bool { return queued(sub) == 4 })
	behind, settle := shardpub.Follow(msg.Context(), 9)
	wantEqual(t, versionsOf(t, msg, behind), []int64{1, 2})
	settle(9)
	msg.Ack()
	msg = receive(t, ch)
	wantEqual(t, versionsOf(t, msg, nil), []int64{4})
	msg.Ack()
	r.reaches(last)
	if letters := r.letters(); len(letters) != 1 || letters[0].Position != 3 {
		t.Errorf("letters %+v", letters)
	}
}

// notThird cannot read the third event.
type notThird struct{ shardpub.DefaultMarshaler }

func (m notThird) Unmarshal(topic, stream string, event kiroku.RecordedEvent) (*message.Message, error) {
	if event.Position == 3 {
		return nil, errors.New("no")
	}
	return m.DefaultMarshaler.Unmarshal(topic, stream, event)
}

// With a message that is given up nothing is settled but itself.
func TestFollowersOfADeadLetterComeAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.subscriber(shards(1))
	last := r.appendTo("orders-1", 3)
	var mu sync.Mutex
	var seen []int64
	done := serve(r.subscribe(sub, "orders"), func(msg *message.Message) error {
		mu.Lock()
		defer mu.Unlock()
		v := deliveryOf(t, msg).Version
		if seen = append(seen, v); v > 1 {
			return nil
		}
		r.until("all wait", func() bool { return queued(sub) == 3 })
		_, settle := shardpub.Follow(msg.Context(), 2)
		settle(2)
		return middleware.Permanent(errors.New("no"))
	})
	r.reaches(last)
	if err := sub.Close(); err != nil {
		t.Error(err)
	}
	ends(t, "the channel", done)
	wantEqual(t, seen, []int64{1, 2, 3})
	if letters := r.letters(); len(letters) != 1 || letters[0].Position != 1 {
		t.Errorf("letters %+v", letters)
	}
}

// A bucket that goes hands nothing more out, and what it handed out with another
// message is settled by it.
func TestBucketThatGoesHasNoFollowers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.appendTo("orders-1", 4)
	ctx, leave := context.WithCancel(t.Context())
	sub := r.subscriber(shards(1))
	ch, err := sub.Subscribe(ctx, "orders")
	if err != nil {
		t.Fatal(err)
	}
	msg := receive(t, ch)
	r.until("all wait", func() bool { return queued(sub) == 4 })
	_, settle := shardpub.Follow(msg.Context(), 1)
	settle(1)
	leave()
	r.until("draining", func() bool { return bucketOf(sub).State == shardpub.Draining })
	msg.Ack()
	ends(t, "the channel", ch)
	if at := r.checkpoint(0); at != 2 {
		t.Errorf("checkpoint %d, want 2", at)
	}

	ctx, leave = context.WithCancel(t.Context())
	sub = r.subscriber(shards(1))
	if ch, err = sub.Subscribe(ctx, "orders"); err != nil {
		t.Fatal(err)
	}
	msg = receive(t, ch)
	r.until("all wait", func() bool { return queued(sub) == 2 })
	leave()
	r.until("draining", func() bool { return bucketOf(sub).State == shardpub.Draining })
	if behind, _ := shardpub.Follow(msg.Context(), 1); behind != nil {
		t.Errorf("%v while it goes", versionsOf(t, msg, behind))
	}
	msg.Ack()
	ends(t, "the channel", ch)
	if at := r.checkpoint(0); at != 3 {
		t.Errorf("checkpoint %d, want 3", at)
	}
}

func TestNothingFollowsAMessageOfAnother(t *testing.T) {
	t.Parallel()
	behind, settle := shardpub.Follow(t.Context(), 3)
	if settle(1); behind != nil {
		t.Errorf("%d messages", len(behind))
	}
}

func wantEqual(t *testing.T, got, want []int64) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("versions %v, want %v", got, want)
	}
}
