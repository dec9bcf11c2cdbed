package router_test

import (
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/suisha-go/suisha/lease"
	"github.com/suisha-go/suisha/router"
	"github.com/suisha-go/suisha/shardpub"
)

func TestNewReportsEveryWrongOption(t *testing.T) {
	t.Parallel()
	_, err := router.New(nil, router.Config{
		Concurrency: -1, DrainTimeout: -1, HandlerTimeout: -2, StuckAfter: -1,
		Retry: shardpub.RetryPolicy{MaxDeliveries: -2},
		Node:  shardpub.NodeConfig{PollInterval: -1, Lease: lease.Config{TTL: time.Second, RenewInterval: time.Second}},
	}, watermill.NopLogger{})
	fields := configFields(err)
	for _, want := range []string{
		"pool", "Config.Shards", "Config.Concurrency", "Config.DrainTimeout", "Config.HandlerTimeout", "Config.StuckAfter",
		"Config.Retry.MaxDeliveries", "NodeConfig.PollInterval",
	} {
		if !fields[want] {
			t.Errorf("%s is not reported in: %v", want, err)
		}
	}
	var bad *lease.ConfigError
	if !errors.As(err, &bad) || bad.Field != "TTL" {
		t.Errorf("the lease's error is missing in: %v", err)
	}
}

// configFields are the fields of all the *shardpub.ConfigErrors in a tree.
func configFields(err error) map[string]bool {
	fields := map[string]bool{}
	var walk func(error)
	walk = func(err error) {
		switch e := err.(type) { //nolint:errorlint // it walks the tree itself
		case nil:
		case *shardpub.ConfigError:
			fields[e.Field] = true
		case interface{ Unwrap() []error }:
			for _, err := range e.Unwrap() {
				walk(err)
			}
		case interface{ Unwrap() error }:
			walk(e.Unwrap())
		}
	}
	walk(err)
	return fields
}

func TestWrongHandlersAreReportedTogetherByStart(t *testing.T) {
	t.Parallel()
	w := newWorker(t, unreachable(t), quick(2))
	w.AddConsumerHandler("billing", "orders", accept)
	w.AddConsumerHandler("billing", "orders", accept).AddMiddleware(refusing)
	w.AddConsumerHandler("", "orders", nil)
	w.AddHandler("relay", "orders", "", nil, func(*message.Message) ([]*message.Message, error) { return nil, nil })
	err := w.Start(t.Context())
	fields := configFields(err)
	for _, want := range []string{
		"Handler.Name", "Handler.Subscription", "Handler.Consume", "Handler.Publisher", "Handler.PublishTopic",
	} {
		if !fields[want] {
			t.Errorf("%s is not reported in: %v", want, err)
		}
	}
	receive(t, "Done", w.Done())
}

func TestAddReportsWrongOptions(t *testing.T) {
	t.Parallel()
	w := newWorker(t, unreachable(t), quick(2))
	_, err := w.Add(router.Handler{
		Name: "billing", Category: "orders", Consume: accept,
		Publisher: shardpub.NewDeadLetterPublisher(),
		Options: shardpub.SubscriberConfig{
			ConsumerGroup: "x", SubscriptionName: shardpub.ExactName, Node: &shardpub.Node{}, Shards: -1, BatchSize: -1,
		},
	})
	var handler *router.HandlerError
	if !errors.As(err, &handler) || handler.Handler != "billing" {
		t.Errorf("Add: %v", err)
	}
	fields := configFields(err)
	for _, want := range []string{
		"Handler.Publisher", "Handler.Options.ConsumerGroup", "Handler.Options.SubscriptionName", "Handler.Options.Node",
		"Handler.Options.Shards", "Handler.Options.BatchSize",
	} {
		if !fields[want] {
			t.Errorf("%s is not reported in: %v", want, err)
		}
	}
	stop(t, w)
}
