package router_test

import (
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/suisha-go/suisha/kiroku"
)

func TestWorkerHandlesEveryEventOnceAndInOrderPerStream(t *testing.T) {
	t.Parallel()
	pool := database(t)
	w := newWorker(t, pool, quick(8))
	var seen diary
	w.AddConsumerHandler("billing", "orders", func(msg *message.Message) error {
		seen.note(msg)
		return nil
	})
	const streams, each = 50, 20
	var last kiroku.Position
	for s := range streams {
		last = add(t, pool, fmt.Sprintf("orders-%d", s), each)
		add(t, pool, "others-1", 1)
	}
	start(t, w)
	waitFor(t, w, "billing", last)
	version := map[string]int64{}
	for _, d := range seen.all() {
		if version[d.Stream]++; d.Version != version[d.Stream] || d.Subscription != "billing" {
			t.Fatalf("delivery %+v, want version %d", d, version[d.Stream])
		}
	}
	if n := seen.len(); n != streams*each {
		t.Errorf("%d deliveries, want %d", n, streams*each)
	}
}
