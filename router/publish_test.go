package router_test

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/router"
	"github.com/suisha-go/suisha/shardpub"
)

// closing counts what it publishes, and how often it is closed.
type closing struct {
	message.Publisher
	mu        sync.Mutex
	published int
	closed    int
	late      int // published after the end
}

func (c *closing) Publish(topic string, messages ...*message.Message) error {
	c.mu.Lock()
	c.published += len(messages)
	if c.closed > 0 {
		c.late++
	}
	c.mu.Unlock()
	return c.Publisher.Publish(topic, messages...)
}

func (c *closing) Close() error {
	c.mu.Lock()
	c.closed++
	c.mu.Unlock()
	return c.Publisher.Close()
}

func translate(msg *message.Message) ([]*message.Message, error) {
	return message.Messages{message.NewMessage(msg.UUID, msg.Payload)}, nil
}

func TestAddHandlerPublishesToAnyPublisherAndHandlersOnOthersRunBeside(t *testing.T) {
	t.Parallel()
	pool := database(t)
	w := newWorker(t, pool, quick(2))
	channel := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 16}, watermill.NopLogger{})
	got := make(chan string, 4)
	w.AddHandler("relay", "orders", "orders-out", channel, translate)
	w.Router().AddConsumerHandler("foreign", "orders-out", channel, func(msg *message.Message) error {
		if _, ours := shardpub.DeliveryFromContext(msg.Context()); ours {
			t.Error("a foreign message has a delivery")
		}
		got <- string(msg.Payload)
		return nil
	})
	last := add(t, pool, "orders-1", 2)
	start(t, w)
	relayed := map[string]bool{}
	for range 2 { // a Go channel keeps no order
		relayed[receive(t, "a relayed message", got)] = true
	}
	if !relayed[`{"n": 1}`] || !relayed[`{"n": 2}`] {
		t.Errorf("relayed %v", relayed)
	}
	waitFor(t, w, "relay", last)
}

// Public case 55: a shared publisher outlives the last handler of all.
func TestASharedPublisherIsClosedOnceAndLast(t *testing.T) {
	t.Parallel()
	pool := database(t)
	w := newWorker(t, pool, quick(1))
	shared := &closing{Publisher: gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})}
	entered := make(chan struct{})
	closing := make(chan struct{})
	w.AddHandler("slow", "orders", "out", shared, func(msg *message.Message) ([]*message.Message, error) {
		close(entered)
		<-closing
		return translate(msg)
	})
	w.AddHandler("quick", "others", "out", shared, translate)
	last := add(t, pool, "orders-1", 1)
	start(t, w)
	receive(t, "the slow handler", entered)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stop(t, w)
	}()
	eventually(t, "the quick handler has stopped", func() bool { return len(w.Health(t.Context()).Subscriptions) == 1 })
	close(closing)
	receive(t, "the end", stopped)
	if shared.published != 1 || shared.closed != 1 || shared.late != 0 {
		t.Errorf("published %d, closed %d times, %d afterwards", shared.published, shared.closed, shared.late)
	}
	checkpoints, err := kiroku.LoadCheckpoints(t.Context(), pool, "slow")
	if err != nil || checkpoints[0] < last {
		t.Errorf("checkpoint %v, want %d; error %v", checkpoints, last, err)
	}
}

// refuses publishes nothing.
type refuses struct{}

func (refuses) Publish(string, ...*message.Message) error { return errBoom }
func (refuses) Close() error                              { return nil }

func TestAFailedPublishIsAFailedAttemptWithItsError(t *testing.T) {
	t.Parallel()
	pool := database(t)
	w := newWorker(t, pool, quick(1))
	w.AddHandler("relay", "orders", "out", refuses{}, translate)
	last := add(t, pool, "orders-1", 1)
	start(t, w)
	waitFor(t, w, "relay", last)
	letters := deadLetters(t, pool, "relay")
	if len(letters) != 1 || letters[0].Attempts != 3 {
		t.Fatalf("dead letters: %+v", letters)
	}
	var reason map[string]any
	if err := json.Unmarshal(letters[0].Reason, &reason); err != nil {
		t.Fatal(err)
	}
	if text, _ := reason["last_error"].(string); !strings.Contains(text, `publish to "out": boom`) {
		t.Errorf("last_error: %q", text)
	}
}

func TestPublisherKeepsItsNameInTheMessageContext(t *testing.T) {
	t.Parallel()
	pool := database(t)
	w := newWorker(t, pool, quick(1))
	names := make(chan string, 2)
	w.AddHandler("relay", "orders", "out", refuses{}, func(msg *message.Message) ([]*message.Message, error) {
		names <- message.PublisherNameFromCtx(msg.Context()) + " " + message.SubscriberNameFromCtx(msg.Context())
		return nil, nil
	})
	add(t, pool, "orders-1", 1)
	start(t, w)
	if name := receive(t, "the names", names); name != "router_test.refuses suisha.relay" {
		t.Errorf("names: %s", name)
	}
}

func TestARenamedHandlerKeepsItsPlace(t *testing.T) {
	t.Parallel()
	pool := database(t)
	first := newWorker(t, pool, quick(2))
	first.AddConsumerHandler("billing", "orders", accept)
	last := add(t, pool, "orders-1", 5)
	start(t, first)
	waitFor(t, first, "billing", last)
	stop(t, first)

	w := newWorker(t, pool, quick(2))
	var seen diary
	_, err := w.Add(router.Handler{
		Name: "invoicing", Subscription: "billing", Category: "orders",
		Consume: func(msg *message.Message) error {
			seen.note(msg)
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	last = add(t, pool, "orders-1", 1)
	start(t, w)
	waitFor(t, w, "billing", last)
	if all := seen.all(); len(all) != 1 || all[0].Subscription != "billing" || all[0].Version != 6 {
		t.Errorf("deliveries: %+v", all)
	}
}

func TestOptionsOfAHandlerWinOverTheWorkers(t *testing.T) {
	t.Parallel()
	pool := database(t)
	cfg := quick(2)
	cfg.HandlerTimeout = 50 * time.Millisecond
	cfg.Start = shardpub.FromHead()
	old := add(t, pool, "orders-1", 3)
	w := newWorker(t, pool, cfg)
	deadlines := make(chan bool, 2)
	note := func(msg *message.Message) error {
		_, ok := msg.Context().Deadline()
		deadlines <- ok
		return nil
	}
	w.AddConsumerHandler("default", "orders", note)
	_, err := w.Add(router.Handler{Name: "own", Category: "orders", Consume: note, Options: shardpub.SubscriberConfig{
		Shards: 3, HandlerTimeout: router.NoTimeout, Start: shardpub.FromPosition(old - 1),
	}})
	if err != nil {
		t.Fatal(err)
	}
	start(t, w)
	if receive(t, "the old event", deadlines) {
		t.Error("a handler without timeout has a deadline")
	}
	waitFor(t, w, "own", old)
	waitFor(t, w, "default", old)
	last := add(t, pool, "others-1", 1)
	waitFor(t, w, "default", last)
	if len(deadlines) != 0 {
		t.Error("started at the head, and got an old event")
	}
	for _, s := range w.Health(t.Context()).Subscriptions {
		if want := map[string]int{"default": 2, "own": 3}[s.Subscription]; s.Shards != want {
			t.Errorf("%s has %d shards, want %d", s.Subscription, s.Shards, want)
		}
	}
}

func TestPlainSubscribersShareTheNodeAndEndWithTheWorker(t *testing.T) {
	t.Parallel()
	pool := database(t)
	w := newWorker(t, pool, quick(2))
	if _, err := w.Subscriber(""); !configFields(err)["SubscriberConfig.ConsumerGroup"] {
		t.Errorf("without a group: %v", err)
	}
	inside, err := w.Subscriber("audit")
	if err != nil {
		t.Fatal(err)
	}
	w.Router().AddConsumerHandler("audit", "orders", inside, func(*message.Message) error { return errors.New("no books") })
	outside, err := w.Subscriber("export")
	if err != nil {
		t.Fatal(err)
	}
	last := add(t, pool, "orders-1", 1)
	start(t, w)
	messages, err := outside.Subscribe(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	receive(t, "a message", messages).Ack()
	waitFor(t, w, "export.orders", last)
	waitFor(t, w, "audit.orders", last)
	letters := deadLetters(t, pool, "audit.orders")
	if len(letters) != 1 || !strings.Contains(string(letters[0].Reason), "no books") {
		t.Errorf("dead letters: %+v", letters)
	}
	stop(t, w)
	if _, open := <-messages; open {
		t.Error("a message after the end")
	}
	if _, err := outside.Subscribe(t.Context(), "orders"); !errors.Is(err, shardpub.ErrSubscriberClosed) {
		t.Errorf("Subscribe after the end: %v", err)
	}
}
