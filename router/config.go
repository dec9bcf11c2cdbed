package router

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/suisha-go/suisha/shardpub"
)

// NoTimeout lifts Config.HandlerTimeout for one handler.
const NoTimeout = time.Duration(-1)

// DefaultStuckAfter is how long a handler may have one event before Health
// reports it.
const DefaultStuckAfter = time.Minute

// Config configures a [Worker]. The zero value of every option is its default,
// except for Shards, which is required. What a [Handler] says of its own wins.
type Config struct {
	// Shards is the number of buckets that each subscription is cut into: the most
	// processes that can share it. It is fixed for the life of a subscription.
	// Required, 1 to 4096.
	Shards int

	// Concurrency is how many streams of one bucket may be handled at once.
	//
	// Defaults to 1.
	Concurrency int

	// Retry says what follows a failed delivery.
	//
	// Defaults to 5 deliveries in all, 1 s apart.
	Retry shardpub.RetryPolicy

	// Start is where a subscription begins that has no checkpoint yet.
	//
	// Defaults to shardpub.FromBeginning.
	Start shardpub.StartPosition

	// Node configures what the handlers share: leases, the session, the feed, and
	// the hooks OnError and Observe.
	Node shardpub.NodeConfig

	// DrainTimeout is how long running handlers may go on when their bucket moves
	// or the Worker stops, before their contexts are cancelled. A Worker ends at
	// most 5 s after the longest DrainTimeout of its handlers.
	//
	// Defaults to 10 s.
	DrainTimeout time.Duration

	// HandlerTimeout ends a message's context when its handler takes longer.
	//
	// Defaults to none.
	HandlerTimeout time.Duration

	// StuckAfter is how long a handler may have one event before [Worker.Health]
	// calls it stuck. Nothing is done about it.
	//
	// Defaults to 1 min, or twice HandlerTimeout if that is longer.
	StuckAfter time.Duration
}

func (c *Config) setDefaults() {
	if c.DrainTimeout == 0 {
		c.DrainTimeout = shardpub.DefaultDrainTimeout
	}
	if c.StuckAfter == 0 {
		c.StuckAfter = max(DefaultStuckAfter, 2*c.HandlerTimeout)
	}
}

// Validate reports every option that cannot be worked with, joined; each is a
// *shardpub.ConfigError, those of Node.Lease a *lease.ConfigError. Defaults
// count as set.
func (c Config) Validate() error {
	c.setDefaults()
	errs := []error{
		named("Config.", c.apply(shardpub.SubscriberConfig{ConsumerGroup: "any"}).Validate()),
		c.Node.Validate(),
	}
	if c.StuckAfter < 0 {
		errs = append(errs, &shardpub.ConfigError{Field: "Config.StuckAfter", Value: c.StuckAfter, Cure: "choose more than 0"})
	}
	return errors.Join(errs...)
}

// apply fills in what a handler leaves to the Worker.
func (c *Config) apply(o shardpub.SubscriberConfig) shardpub.SubscriberConfig {
	orDefault(&o.Shards, c.Shards)
	orDefault(&o.Concurrency, c.Concurrency)
	orDefault(&o.Retry, c.Retry)
	orDefault(&o.Start, c.Start)
	orDefault(&o.DrainTimeout, c.DrainTimeout)
	orDefault(&o.HandlerTimeout, c.HandlerTimeout)
	if o.HandlerTimeout == NoTimeout {
		o.HandlerTimeout = 0
	}
	return o
}

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// named puts another name before the fields of joined *shardpub.ConfigErrors.
func named(prefix string, err error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	var errs []error
	for _, err := range joined.Unwrap() {
		var bad *shardpub.ConfigError
		if errors.As(err, &bad) {
			_, field, _ := strings.Cut(bad.Field, ".")
			err = &shardpub.ConfigError{Field: prefix + field, Value: bad.Value, Cure: bad.Cure}
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Handler is a handler with all of its options, for [Worker.Add].
type Handler struct {
	// Name is the handler's name in Watermill's logs and metrics. Required, and
	// no two handlers of a Worker have the same.
	Name string

	// Category is what it reads: the text before the first "-" of its streams'
	// names, or shardpub.AllStreams. Required.
	Category string

	// Subscription is the name that leases, checkpoints and dead letters are kept
	// under. It belongs to one category for ever. A handler that is renamed keeps
	// its place by keeping its Subscription.
	//
	// Defaults to Name.
	Subscription string

	// Consume handles a message and returns nothing to publish. Exactly one of
	// Consume and Handle is required.
	Consume message.NoPublishHandlerFunc

	// Handle handles a message; Publisher publishes what it returns to
	// PublishTopic before the message is acked. Both are required with it.
	Handle message.HandlerFunc

	// PublishTopic and Publisher belong to Handle. The Worker closes the
	// Publisher when it has ended, after the last handler of all; several handlers
	// may share it.
	PublishTopic string
	Publisher    message.Publisher

	// Options are all other options. What is zero is the Worker's Config, else the
	// Subscriber's default. [NoTimeout] undoes Config.HandlerTimeout; nothing undoes
	// Config.Start, as FromBeginning is the zero value: leave that zero then, and
	// set Start here. ConsumerGroup, SubscriptionName and Node are the Worker's.
	Options shardpub.SubscriberConfig
}

// check reports all that is wrong with a handler as it was given.
func (h *Handler) check() error {
	var errs []error
	bad := func(wrong bool, field string, value any, cure string) {
		if wrong {
			errs = append(errs, &shardpub.ConfigError{Field: "Handler." + field, Value: value, Cure: cure})
		}
	}
	bad(h.Name == "", "Name", h.Name, "name the handler")
	bad((h.Consume == nil) == (h.Handle == nil), "Consume", presence(h.Consume != nil), "set exactly one of Consume and Handle")
	bad(h.Handle != nil && h.Publisher == nil, "Publisher", nil, "set the Publisher of what Handle returns, or use Consume")
	bad(h.Handle != nil && h.PublishTopic == "", "PublishTopic", h.PublishTopic, "name the topic that Handle publishes to")
	bad(h.Handle == nil && (h.Publisher != nil || h.PublishTopic != ""), "Publisher", presence(h.Publisher != nil), "set Handle, or no Publisher and PublishTopic")
	bad(h.Options.ConsumerGroup != "", "Options.ConsumerGroup", h.Options.ConsumerGroup, "leave it empty and set Subscription")
	bad(h.Options.SubscriptionName != nil, "Options.SubscriptionName", "set", "leave it nil and set Subscription")
	bad(h.Options.Node != nil, "Options.Node", "set", "leave it nil: the Worker has one")
	return errors.Join(errs...)
}

func presence(set bool) string {
	if set {
		return "set"
	}
	return "not set"
}

// options are the Subscriber's, complete.
func (h *Handler) options(c *Config, node *shardpub.Node) (shardpub.SubscriberConfig, error) {
	o := c.apply(h.Options)
	o.ConsumerGroup = cmp.Or(h.Subscription, h.Name, "unnamed") // check speaks of a missing name
	o.SubscriptionName = shardpub.ExactName
	o.Node = node
	if err := o.Validate(); err != nil {
		return o, named("Handler.Options.", err)
	}
	return o, nil
}

func duplicate(field, value string) error {
	return &shardpub.ConfigError{Field: field, Value: fmt.Sprintf("%q again", value), Cure: "each handler of a Worker needs one of its own"}
}
