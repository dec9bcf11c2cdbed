// Alongside: three Pub/Subs on one Watermill router. A Go channel brings
// commands, suisha shares the events they make among all processes, and
// watermill-sql carries the invoices on.
package main

import (
	"context"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/suisha-go/suisha/examples/internal/playground"
	"github.com/suisha-go/suisha/router"
	"github.com/suisha-go/suisha/shardpub"
)

const commands = 30

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

	logger := watermill.NopLogger{}
	w, err := router.New(pool, router.Config{Shards: 4}, logger)
	if err != nil {
		return err
	}
	events, err := shardpub.NewPublisher(pool, shardpub.PublisherConfig{}, logger)
	if err != nil {
		return err
	}
	invoicesIn, invoicesOut, err := watermillSQL(pool, logger)
	if err != nil {
		return err
	}
	channel := gochannel.NewGoChannel(gochannel.Config{}, logger)

	// A command from the Go channel becomes an event in the store …
	w.Router().AddHandler("accept", "commands", channel, "orders", events, func(msg *message.Message) ([]*message.Message, error) {
		event := message.NewMessage(msg.UUID, msg.Payload)
		event.Metadata.Set(shardpub.MetadataKey, msg.UUID)
		return message.Messages{event}, nil
	})
	// … which one of all processes makes an invoice of …
	w.AddHandler("invoicing", "orders", "invoices", invoicesOut, func(msg *message.Message) ([]*message.Message, error) {
		return message.Messages{message.NewMessage(msg.UUID, msg.Payload)}, nil
	})
	// … that watermill-sql delivers to the mailer.
	mails := mailer{sent: map[string]int{}, done: make(chan struct{})}
	w.Router().AddConsumerHandler("mail", "invoices", invoicesIn, mails.send)

	if err := w.Start(ctx); err != nil {
		return err
	}
	for i := range commands {
		if err := channel.Publish("commands", message.NewMessage(watermill.NewUUID(), fmt.Appendf(nil, `{"order": %d}`, i))); err != nil {
			return err
		}
	}
	select {
	case <-mails.done:
	case <-ctx.Done():
		return fmt.Errorf("only %d of %d mails were sent", mails.count(), commands)
	}
	if err := w.Stop(ctx); err != nil {
		return err
	}
	for id, n := range mails.sent {
		if n != 1 {
			return fmt.Errorf("order %s was mailed %d times", id, n)
		}
	}
	fmt.Printf("%d commands, %d events, %d invoices mailed: one router, three Pub/Subs\n", commands, commands, mails.count())
	return nil
}

func watermillSQL(pool *pgxpool.Pool, logger watermill.LoggerAdapter) (message.Subscriber, message.Publisher, error) {
	db := stdlib.OpenDBFromPool(pool)
	sub, err := sql.NewSubscriber(db, sql.SubscriberConfig{
		SchemaAdapter: sql.DefaultPostgreSQLSchema{}, OffsetsAdapter: sql.DefaultPostgreSQLOffsetsAdapter{},
		PollInterval: 50 * time.Millisecond, InitializeSchema: true,
	}, logger)
	if err != nil {
		return nil, nil, err
	}
	if err := sub.SubscribeInitialize("invoices"); err != nil {
		return nil, nil, err
	}
	pub, err := sql.NewPublisher(db, sql.PublisherConfig{SchemaAdapter: sql.DefaultPostgreSQLSchema{}}, logger)
	return sub, pub, err
}

type mailer struct {
	mu   sync.Mutex
	sent map[string]int
	done chan struct{}
}

func (m *mailer) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.sent)
}

func (m *mailer) send(msg *message.Message) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sent[msg.UUID]++
	if len(m.sent) == commands && m.sent[msg.UUID] == 1 {
		close(m.done)
	}
	return nil
}
