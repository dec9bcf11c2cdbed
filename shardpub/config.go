package shardpub

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/lease"
)

// AllStreams as a topic subscribes to everything. Publishing to it is refused.
const AllStreams = kiroku.AllStreams

// Unlimited lifts MaxDeliveries or MaxInFlight.
const Unlimited = kiroku.Unlimited

// NoDelay asks for no delay where zero means the default.
const NoDelay = kiroku.NoDelay

// RetryPolicy says what follows a failed delivery: {MaxDeliveries; Delay,
// MaxDelay; Multiplier, Jitter}. The zero value is keiro's: five deliveries in
// all, one second apart.
type RetryPolicy = kiroku.RetryPolicy

// StartPosition says where a subscription begins that has no checkpoint yet.
type StartPosition = kiroku.Start

// FromBeginning starts at the first event of the log. It is the default.
func FromBeginning() StartPosition { return kiroku.FromBeginning() }

// FromHead starts behind the last event that is in the log when the
// subscription is first ensured, for all its buckets at once.
func FromHead() StartPosition { return kiroku.FromHead() }

// FromPosition starts behind p.
func FromPosition(p kiroku.Position) StartPosition { return kiroku.FromPosition(p) }

// MustExist refuses to start a subscription that has no checkpoint.
func MustExist() StartPosition { return kiroku.MustExist() }

// DeadLetterPolicy says what an event that was given up means for those behind it.
type DeadLetterPolicy int

// SkipEvent records the event and goes on with the next of its stream.
const SkipEvent DeadLetterPolicy = 0

// Defaults of SubscriberConfig and NodeConfig. Those of batch, buffer and retry
// are keiro's.
const (
	DefaultConcurrency        = 1
	DefaultBatchSize          = 100
	DefaultPrefetchCount      = 256
	DefaultPrefetchBytes      = 16 << 20
	DefaultCheckpointInterval = 100 * time.Millisecond
	DefaultDrainTimeout       = 10 * time.Second
	DefaultStartTimeout       = 10 * time.Second
	DefaultPollInterval       = 5 * time.Second
	DefaultDirectorySize      = 200_000
)

// SubscriberConfig configures a [Subscriber]. The zero value of every option is
// its default, except for ConsumerGroup and Shards, which are required.
type SubscriberConfig struct {
	// ConsumerGroup names who reads. Subscribers of one group share the events of
	// a topic; each group gets them all. Required.
	ConsumerGroup string

	// SubscriptionName derives the name that leases, checkpoints and dead letters
	// of a topic are kept under. A name belongs to one topic for ever.
	//
	// Defaults to group + "." + topic. [ExactName] is the group alone: what keiro
	// and the router package use.
	SubscriptionName func(group, topic string) string

	// Shards is the number of buckets that a subscription is cut into: the most
	// workers that can share it, and with Concurrency the most events in flight.
	// It is fixed per subscription. Required, 1 to 4096.
	Shards int

	// Concurrency is how many streams of one bucket may be in flight at once.
	// Events of one stream always go one by one, or several together where a handler
	// asks for it with [Follow].
	//
	// Defaults to 1: a bucket is handled strictly in order (but for Follow), and an
	// event that fails holds up its whole bucket until it succeeds or is given up.
	// With more, it holds up its own stream, and others go on in the places that are
	// left, until they are PrefetchCount events ahead, or 4,096 if that is less.
	Concurrency int

	// MaxInFlight bounds the deliveries in flight per subscription and process.
	//
	// Defaults to Unlimited: buckets × Concurrency.
	MaxInFlight int

	// BatchSize is how many events of one bucket a page of the log is meant to
	// bring. Larger pages cost fewer round trips and more memory.
	//
	// Defaults to 100.
	BatchSize int

	// PrefetchCount is how many events of a bucket may wait in memory.
	//
	// Defaults to 256.
	PrefetchCount int

	// PrefetchBytes is how many bytes of payload and metadata may wait in memory
	// per subscription and process, shared evenly by its buckets. An event larger
	// than its bucket's share passes alone.
	//
	// Defaults to 16 MiB.
	PrefetchBytes int

	// CheckpointInterval is the time from a settled event until its checkpoint is
	// written, together with all others of the Node, where the shortest counts; at
	// most 20 times a second. Where 128 buckets and more are written at once, as
	// seldom as that takes a tenth of the time, at least every second. A crash repeats
	// what was not yet written.
	//
	// Defaults to 100 ms.
	CheckpointInterval time.Duration

	// DrainTimeout is how long running handlers may go on when their bucket
	// moves, or the Subscriber is closed, before their contexts are cancelled.
	//
	// Defaults to 10 s.
	DrainTimeout time.Duration

	// HandlerTimeout ends the message's context when a handler takes longer. An
	// error that it then returns is a failed attempt; a late Ack still settles the
	// event. Zero: no timeout.
	HandlerTimeout time.Duration

	// StartTimeout is how long Subscribe tries to reach the server.
	//
	// Defaults to 10 s.
	StartTimeout time.Duration

	// Start is where a subscription begins that has no checkpoint.
	//
	// Defaults to FromBeginning.
	Start StartPosition

	// Retry says what follows a failed delivery.
	//
	// Defaults to 5 deliveries in all, 1 s apart.
	Retry RetryPolicy

	// DeadLetter says what an event that was given up means for those behind it.
	//
	// Defaults to SkipEvent.
	DeadLetter DeadLetterPolicy

	// Unmarshaler makes messages of events.
	//
	// Defaults to DefaultMarshaler.
	Unmarshaler Unmarshaler

	// OnAssigned is called before the first delivery of a bucket that this process
	// got. ctx ends when the bucket goes. The bucket waits for it. If it panics the
	// bucket is given to another worker, and not taken again here for 10 s.
	OnAssigned func(ctx context.Context, a Assignment)

	// OnRevoked is called after the last handler of a bucket that goes, before its
	// release; with lease.Lost it is gone already. It follows every OnAssigned that
	// returned, unless the Subscriber was closed before the handler ended. It has
	// what is left of DrainTimeout, at least 1 s; then ctx ends, the delay is reported
	// as *HookError, and a Close does not wait any longer: the call may outlast it.
	OnRevoked func(ctx context.Context, a Assignment, r lease.Reason)

	// Node is what subscribers of one process share. Nil: a private one, closed
	// with the Subscriber.
	Node *Node
}

// Assignment is a bucket that this process holds.
type Assignment struct {
	Subscription string
	Bucket       int
	Shards       int
	// Checkpoint is where it begins.
	Checkpoint kiroku.Position
}

// ExactName names a subscription like its group, whatever the topic.
func ExactName(group, _ string) string { return group }

func dottedName(group, topic string) string { return group + "." + topic }

func (c *SubscriberConfig) setDefaults() {
	if c.SubscriptionName == nil {
		c.SubscriptionName = dottedName
	}
	if c.Unmarshaler == nil {
		c.Unmarshaler = DefaultMarshaler{}
	}
	orDefault(&c.Concurrency, DefaultConcurrency)
	orDefault(&c.MaxInFlight, Unlimited)
	orDefault(&c.BatchSize, DefaultBatchSize)
	orDefault(&c.PrefetchCount, DefaultPrefetchCount)
	orDefault(&c.PrefetchBytes, DefaultPrefetchBytes)
	orDefault(&c.CheckpointInterval, DefaultCheckpointInterval)
	orDefault(&c.DrainTimeout, DefaultDrainTimeout)
	orDefault(&c.StartTimeout, DefaultStartTimeout)
	c.Retry = c.Retry.WithDefaults()
}

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// maxShards is what leases take.
const maxShards = 4096

// Validate reports every option that cannot be worked with, joined; each is a
// *ConfigError. Defaults count as set.
func (c SubscriberConfig) Validate() error {
	c.setDefaults()
	v := validation{of: "SubscriberConfig."}
	v.check(c.ConsumerGroup != "", "ConsumerGroup", c.ConsumerGroup, "name the group that reads")
	v.check(c.Shards >= 1 && c.Shards <= maxShards, "Shards", c.Shards, fmt.Sprintf("choose 1 to %d; it is fixed for the life of the subscription", maxShards))
	v.check(c.Concurrency >= 1, "Concurrency", c.Concurrency, "choose at least 1")
	v.check(c.MaxInFlight >= 1 || c.MaxInFlight == Unlimited, "MaxInFlight", c.MaxInFlight, "choose at least 1, or Unlimited")
	v.check(c.BatchSize >= 1, "BatchSize", c.BatchSize, "choose at least 1")
	v.check(c.PrefetchCount >= 1, "PrefetchCount", c.PrefetchCount, "choose at least 1")
	v.check(c.PrefetchBytes >= 1, "PrefetchBytes", c.PrefetchBytes, "choose at least 1 byte")
	v.check(c.CheckpointInterval > 0, "CheckpointInterval", c.CheckpointInterval, "choose more than 0")
	v.check(c.DrainTimeout > 0, "DrainTimeout", c.DrainTimeout, "choose more than 0")
	v.check(c.HandlerTimeout >= 0, "HandlerTimeout", c.HandlerTimeout, "choose 0 for none, or more")
	v.check(c.StartTimeout > 0, "StartTimeout", c.StartTimeout, "choose more than 0")
	v.check(c.DeadLetter == SkipEvent, "DeadLetter", c.DeadLetter, "choose SkipEvent")
	v.retry("Retry", c.Retry)
	return v.err()
}

// validation gathers what is wrong with a config.
type validation struct {
	of   string
	errs []error
}

func (v *validation) check(ok bool, field string, value any, cure string) {
	if !ok {
		v.errs = append(v.errs, &ConfigError{Field: v.of + field, Value: value, Cure: cure})
	}
}

func (v *validation) retry(field string, p RetryPolicy) {
	v.check(p.MaxDeliveries >= 1 || p.MaxDeliveries == Unlimited, field+".MaxDeliveries", p.MaxDeliveries, "choose at least 1, or Unlimited")
	v.check(p.Delay >= 0 || p.Delay == NoDelay, field+".Delay", p.Delay, "choose more than 0, or NoDelay")
	v.check(p.MaxDelay > 0, field+".MaxDelay", p.MaxDelay, "choose more than 0")
	v.check(p.Multiplier >= 1, field+".Multiplier", p.Multiplier, "choose at least 1")
	v.check(p.Jitter >= 0 && p.Jitter <= 1, field+".Jitter", p.Jitter, "choose 0 to 1")
}

func (v *validation) err() error { return errors.Join(v.errs...) }
