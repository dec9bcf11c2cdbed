package shardpub_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/suisha-go/suisha/internal/pgtest"
	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/shardpub"
)

// The whole path of an event, from the log through a Watermill router to its
// checkpoint. An operation is an event, so allocations are counted per event.
func BenchmarkDrainThroughRouter(b *testing.B) {
	const streams = 1000
	pool := pgtest.New(b, shardpub.Migrate)
	event := kiroku.Event{Type: "Happened", Data: []byte(`{"pad": "` + fmt.Sprintf("%0180d", 1) + `"}`)}
	for left := b.N; left > 0; left -= streams {
		mixed := make([]kiroku.StreamAppend, min(streams, left))
		for i := range mixed {
			mixed[i] = kiroku.StreamAppend{Stream: fmt.Sprintf("orders-%d", i), Events: []kiroku.Event{event}}
		}
		if _, err := kiroku.Append(b.Context(), pool, mixed...); err != nil {
			b.Fatal(err)
		}
	}
	sub, err := shardpub.NewSubscriber(pool, shardpub.SubscriberConfig{ConsumerGroup: "bench", Shards: 16}, nil)
	if err != nil {
		b.Fatal(err)
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		b.Fatal(err)
	}
	var handled atomic.Int64
	done := make(chan struct{})
	router.AddConsumerHandler("bench", "orders", sub, func(*message.Message) error {
		if handled.Add(1) == int64(b.N) {
			close(done)
		}
		return nil
	})
	ended := make(chan error, 1)
	b.ReportAllocs()
	b.ResetTimer()
	go func() { ended <- router.Run(b.Context()) }()
	<-done
	b.StopTimer()
	if err := router.Close(); err != nil {
		b.Error(err)
	}
	if err := <-ended; err != nil {
		b.Error(err)
	}
}
