// Quickstart: publish 100 orders, handle each of them once, stop.
package main

import (
	"context"
	"fmt"
	"log"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/suisha-go/suisha/examples/internal/playground"
	"github.com/suisha-go/suisha/router"
	"github.com/suisha-go/suisha/shardpub"
)

const orders = 100

func main() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	handled, err := run(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if handled != orders {
		log.Fatalf("handled %d of %d orders", handled, orders)
	}
	fmt.Printf("published %d orders, handled %d\n", orders, handled)
}

func run(ctx context.Context) (int64, error) {
	pool, closeAll, err := playground.Open(ctx) // yours: pgxpool.New, and shardpub.Migrate once
	if err != nil {
		return 0, err
	}
	defer closeAll()

	w, err := router.New(pool, router.Config{Shards: 8}, nil)
	if err != nil {
		return 0, err
	}
	var handled atomic.Int64
	w.AddConsumerHandler("billing", "orders", func(msg *message.Message) error {
		d, _ := shardpub.DeliveryFromContext(msg.Context())
		fmt.Printf("%-10s bucket %d  %s\n", d.Stream, d.Bucket, msg.Payload)
		handled.Add(1)
		return nil // nil acks; an error retries, and in the end parks the event
	})
	if err := w.Start(ctx); err != nil {
		return 0, err
	}

	pub, err := shardpub.NewPublisher(pool, shardpub.PublisherConfig{}, nil)
	if err != nil {
		return 0, err
	}
	for i := range orders {
		msg := message.NewMessage(watermill.NewUUID(), fmt.Appendf(nil, `{"order": %d}`, i))
		msg.Metadata.Set(shardpub.MetadataKey, strconv.Itoa(i%10)) // one stream per customer: in order
		if err := pub.Publish("orders", msg); err != nil {
			return 0, err
		}
	}
	for handled.Load() < orders && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	return handled.Load(), w.Stop(ctx) // drains, writes checkpoints, gives the buckets back
}
