//go:build peers

package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-nats/v2/pkg/jetstream"
	watermillnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"

	"github.com/suisha-go/suisha/internal/bench"
)

// broker is a NATS server in this process, with its streams on disk, which it
// syncs when it likes, as by default.
type broker struct {
	server *server.Server
	dir    string
	conn   *natsgo.Conn
}

func startBroker() (*broker, error) {
	dir, err := os.MkdirTemp("", "suisha-bench-nats-")
	if err != nil {
		return nil, err
	}
	b := &broker{dir: dir}
	b.server, err = server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	b.server.Start()
	if !b.server.ReadyForConnections(10 * time.Second) {
		b.close()
		return nil, errors.New("the NATS server does not answer")
	}
	if b.conn, err = natsgo.Connect(b.server.ClientURL()); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *broker) close() {
	if b.conn != nil {
		b.conn.Close()
	}
	b.server.Shutdown()
	b.server.WaitForShutdown()
	_ = os.RemoveAll(b.dir)
}

// fill publishes messages from 0 on without waiting for each.
func (b *broker) fill(messages int) error {
	js, err := b.conn.JetStream(natsgo.PublishAsyncMaxPending(4096))
	if err != nil {
		return err
	}
	if _, err := js.AddStream(&natsgo.StreamConfig{Name: bench.Orders, Subjects: []string{bench.Orders}}); err != nil {
		return err
	}
	marshaler := &watermillnats.NATSMarshaler{}
	for n := range messages {
		m, err := marshaler.Marshal(bench.Orders, message.NewMessage(watermill.NewUUID(), bench.Payload(n)))
		if err != nil {
			return err
		}
		if _, err := js.PublishMsgAsync(m); err != nil {
			return err
		}
	}
	select {
	case <-js.PublishAsyncComplete():
		return nil
	case <-time.After(time.Minute):
		return errors.New("JetStream did not acknowledge all messages")
	}
}

// count is how many messages the stream has.
func (b *broker) count() (int64, error) {
	js, err := b.conn.JetStream()
	if err != nil {
		return 0, err
	}
	info, err := js.StreamInfo(bench.Orders)
	if err != nil {
		return 0, err
	}
	return int64(info.State.Msgs), nil //nolint:gosec // G115: a few million
}

func (b *broker) publisher(quiet *bench.Quiet) (message.Publisher, error) {
	return watermillnats.NewPublisher(watermillnats.PublisherConfig{URL: b.server.ClientURL(), Marshaler: &watermillnats.NATSMarshaler{}}, quiet)
}

// pull and push are the two subscribers of watermill-nats.
func (b *broker) pull(async bool, quiet *bench.Quiet) (message.Subscriber, error) {
	return jetstream.NewSubscriber(jetstream.SubscriberConfig{URL: b.server.ClientURL(), Logger: quiet, AckAsync: async})
}

func (b *broker) push(async bool, quiet *bench.Quiet) (message.Subscriber, error) {
	return watermillnats.NewSubscriber(watermillnats.SubscriberConfig{
		URL: b.server.ClientURL(), QueueGroupPrefix: "bench",
		JetStream: watermillnats.JetStreamConfig{DurablePrefix: "bench", AckAsync: async, SubscribeOptions: []natsgo.SubOpt{natsgo.DeliverAll(), natsgo.AckExplicit()}},
	}, quiet)
}

type natsSubscribe func(b *broker, async bool, quiet *bench.Quiet) (message.Subscriber, error)

func natsDrain(backlog bench.Backlog, async bool, subscribe natsSubscribe) func(context.Context, *bench.Env) (bench.Values, error) {
	return func(ctx context.Context, e *bench.Env) (bench.Values, error) {
		b, err := startBroker()
		if err != nil {
			return nil, err
		}
		defer b.close()
		backlog := within(e, backlog)
		if err := b.fill(backlog.Events); err != nil {
			return nil, err
		}
		quiet := &bench.Quiet{}
		return backlog.Drain(ctx, bench.Orders, quiet, func() (message.Subscriber, error) { return subscribe(b, async, quiet) })
	}
}

func natsDrains(events int) []bench.Case {
	all := bench.Backlog{Events: events}
	some := bench.Backlog{Events: min(events, 30_000)}
	const durable = "embedded server, file store synced lazily"
	return []bench.Case{
		{Name: nats + ", pull", Peer: nats, Options: "watermill-nats/jetstream, waits for each ack; " + durable, Note: "30,000 messages", Once: true, Run: natsDrain(some, false, (*broker).pull)},
		{Name: nats + ", pull, AckAsync", Peer: nats, Options: "watermill-nats/jetstream, AckAsync; " + durable, Run: natsDrain(all, true, (*broker).pull)},
		{Name: nats + ", push, AckAsync", Peer: nats, Options: "watermill-nats/nats, durable queue group, AckAsync; " + durable, Run: natsDrain(all, true, (*broker).push)},
	}
}
