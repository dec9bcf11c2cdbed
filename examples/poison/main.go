// Poison: one order can never be billed, another fails every time. Both end as
// dead letters with their reasons; the other orders go on. At the end the dead
// letters are looked at.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/examples/internal/playground"
	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/middleware"
	"github.com/suisha-go/suisha/router"
	"github.com/suisha-go/suisha/shardpub"
)

var errNoCustomer = errors.New("order has no customer")

func main() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	pool, closeAll, err := playground.Open(ctx)
	if err != nil {
		return err
	}
	defer closeAll()

	w, err := router.New(pool, router.Config{Shards: 4}, nil)
	if err != nil {
		return err
	}
	var billed, calls atomic.Int64
	h := w.AddConsumerHandler("billing", "orders", func(msg *message.Message) error {
		d, _ := shardpub.DeliveryFromContext(msg.Context())
		switch {
		case strings.Contains(string(msg.Payload), "nobody"):
			return middleware.Permanent(errNoCustomer) // no use in trying again
		case strings.Contains(string(msg.Payload), "broken"):
			calls.Add(1)
			return fmt.Errorf("attempt %d: card reader on fire", d.Attempt)
		}
		billed.Add(1)
		return nil
	})
	h.AddMiddleware(middleware.Retry(shardpub.RetryPolicy{MaxDeliveries: 3, Delay: 20 * time.Millisecond, Multiplier: 2}))
	if err := w.Start(ctx); err != nil {
		return err
	}
	if err := publish(pool, "alice", "nobody", "bob", "broken", "carol"); err != nil {
		return err
	}
	head, err := kiroku.Head(ctx, pool)
	if err != nil {
		return err
	}
	if err := w.WaitFor(ctx, "billing", head); err != nil { // settled, one way or the other
		return err
	}
	if err := w.Stop(ctx); err != nil {
		return err
	}
	if billed.Load() != 3 || calls.Load() != 3 {
		return fmt.Errorf("billed %d orders with %d calls for the broken one, want 3 and 3", billed.Load(), calls.Load())
	}
	return look(ctx, pool)
}

func publish(pool *pgxpool.Pool, customers ...string) error {
	pub, err := shardpub.NewPublisher(pool, shardpub.PublisherConfig{}, nil)
	if err != nil {
		return err
	}
	for _, customer := range customers {
		msg := message.NewMessage(watermill.NewUUID(), fmt.Appendf(nil, `{"customer": %q}`, customer))
		msg.Metadata.Set(shardpub.MetadataKey, customer)
		if err := pub.Publish("orders", msg); err != nil {
			return err
		}
	}
	return nil
}

// look prints the dead letters and checks that they say what happened.
func look(ctx context.Context, pool *pgxpool.Pool) error {
	letters, _, err := kiroku.ListDeadLetters(ctx, pool, kiroku.DeadLetterFilter{Subscription: "billing"})
	if err != nil {
		return err
	}
	found := map[string]int{}
	for _, l := range letters {
		fmt.Printf("position %d, bucket %d, after %d deliveries: %s\n    %s\n", l.Position, l.Member, l.Attempts, l.Summary, l.Reason)
		found[l.Summary] = l.Attempts
	}
	if len(letters) != 2 || found["poison: "+errNoCustomer.Error()] != 1 || found["max retry attempts exceeded (3)"] != 3 {
		return fmt.Errorf("unexpected dead letters: %v", found)
	}
	return nil
}
