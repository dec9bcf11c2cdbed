package shardpub_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/internal/pgtest"
	"github.com/suisha-go/suisha/lease"
	"github.com/suisha-go/suisha/shardpub"
)

// suite is one way to run Watermill's own conformance suite.
type suite struct {
	shards  int
	key     func(topic string, m *message.Message) (string, error)
	ordered bool
	short   bool // unless SUISHA_SUITE=full
	restart []string
}

func keyByPayload(_ string, m *message.Message) (string, error) { return string(m.Payload), nil }

func keyByUUID(_ string, m *message.Message) (string, error) { return m.UUID, nil }

// spell makes a category of a topic of the suite: those hold "-", also behind
// what GenerateTopicFunc returns.
func spell(topic string) string { return strings.ReplaceAll(topic, "-", "_") }

// features says what we claim.
func (s suite) features() tests.Features {
	return tests.Features{
		ConsumerGroups:        true,
		GuaranteedOrder:       s.ordered,
		Persistent:            true,
		GenerateTopicFunc:     func(tctx tests.TestContext) string { return spell("topic_" + string(tctx.TestID)) },
		ForceShort:            s.short && os.Getenv("SUISHA_SUITE") != "full",
		RestartServiceCommand: s.restart,
	}
}

func (s suite) pubSub(t *testing.T, pool *pgxpool.Pool, group string) (message.Publisher, message.Subscriber) {
	t.Helper()
	logger := watermill.NopLogger{}
	pub, err := shardpub.NewPublisher(pool, shardpub.PublisherConfig{Key: s.key}, logger)
	if err != nil {
		t.Fatal(err)
	}
	node, err := shardpub.NewNode(pool, shardpub.NodeConfig{
		Lease:        lease.Config{TTL: 6 * time.Second, RenewInterval: 2 * time.Second},
		PollInterval: time.Second,
	}, logger)
	if err != nil {
		t.Fatal(err)
	}
	sub, err := shardpub.NewSubscriber(nil, shardpub.SubscriberConfig{
		ConsumerGroup: group,
		Shards:        s.shards,
		DrainTimeout:  500 * time.Millisecond,
		StartTimeout:  30 * time.Second,
		Retry:         shardpub.RetryPolicy{MaxDeliveries: shardpub.Unlimited, Delay: 5 * time.Millisecond},
		Node:          node,
	}, logger)
	if err != nil {
		t.Fatal(err)
	}
	return spelled{pub}, ownNode{sub, node}
}

// spelled publishes to topics of the suite.
type spelled struct{ *shardpub.Publisher }

func (s spelled) Publish(topic string, m ...*message.Message) error {
	return s.Publisher.Publish(spell(topic), m...)
}

// ownNode closes the Node with the Subscriber, as a private one is.
type ownNode struct {
	*shardpub.Subscriber
	node *shardpub.Node
}

func (o ownNode) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	return o.Subscriber.Subscribe(ctx, spell(topic))
}

func (o ownNode) SubscribeInitialize(topic string) error {
	return o.Subscriber.SubscribeInitialize(spell(topic))
}

func (o ownNode) Close() error {
	err := o.Subscriber.Close()
	if nerr := o.node.Close(); err == nil {
		err = nerr
	}
	return err
}

func (s suite) run(t *testing.T) {
	t.Helper()
	pool := pgtest.New(t, shardpub.Migrate)
	tests.TestPubSub(t, s.features(),
		func(t *testing.T) (message.Publisher, message.Subscriber) { return s.pubSub(t, pool, "group") },
		func(t *testing.T, group string) (message.Publisher, message.Subscriber) {
			return s.pubSub(t, pool, group)
		},
	)
}

func TestPubSubOrdered(t *testing.T) { suite{shards: 8, key: keyByPayload, ordered: true}.run(t) } //nolint:paralleltest // the suite fills the machine

func TestPubSubUnordered(t *testing.T) { suite{shards: 8, key: keyByUUID, short: true}.run(t) } //nolint:paralleltest // the suite fills the machine

func TestPubSubOneBucket(t *testing.T) { //nolint:paralleltest // the suite fills the machine
	suite{shards: 1, key: keyByPayload, ordered: true, short: true}.run(t)
}
