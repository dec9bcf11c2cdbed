package shardpub

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Subscriber is a message.Subscriber whose topic is a category of the event
// store, or [AllStreams]. All Subscribers of one ConsumerGroup, in all
// processes, share the topic's events bucket by bucket; each event goes to one
// of them, in order per stream, at least once.
//
// Ack settles an event. Nack hands it out again, here, after the retry delay;
// when the budget is used up it becomes a row in kiroku.dead_letters. A
// message's context carries the values of the Subscribe context but does not
// end with it: running handlers finish, for up to DrainTimeout.
//
// Its methods are safe for concurrent use.
type Subscriber struct {
	cfg     SubscriberConfig
	node    *Node
	private bool // the Node is closed with the Subscriber
	logger  watermill.LoggerAdapter

	closing   chan struct{}
	closeOnce sync.Once
	closeErr  error

	mu      sync.Mutex // guards what follows
	closed  bool
	subs    map[*subscription]struct{}
	drains  []error // what outlived its drain in subscriptions that ended
	running sync.WaitGroup
}

var (
	_ message.Subscriber           = (*Subscriber)(nil)
	_ message.SubscribeInitializer = (*Subscriber)(nil)
	_ fmt.Stringer                 = (*Subscriber)(nil)
)

// NewSubscriber validates and touches nothing. All that is wrong with the
// config is in one error, each a *ConfigError. A nil logger logs nothing. With
// cfg.Node the pool is not used and may be nil.
//
// On a Watermill router of your own add middleware.Mark, so that dead letters say
// what the handler said, and middleware.Permanent is obeyed.
func NewSubscriber(pool *pgxpool.Pool, cfg SubscriberConfig, logger watermill.LoggerAdapter) (*Subscriber, error) {
	if logger == nil {
		logger = watermill.NopLogger{}
	}
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("invalid config: %w", err)
	}
	cfg.setDefaults()
	s := &Subscriber{cfg: cfg, node: cfg.Node, logger: logger, closing: make(chan struct{}), subs: map[*subscription]struct{}{}}
	if s.node == nil {
		node, err := NewNode(pool, NodeConfig{}, logger)
		if err != nil {
			return nil, err
		}
		s.node, s.private = node, true
	}
	return s, nil
}

// Subscribe joins the topic's subscription as a worker with an id of its own
// and returns when the subscription is ensured; buckets come later, and as long
// as the worker owns none, nothing is delivered.
//
// Errors, before anything is claimed: *TopicError, lease's *ShardCountError and
// *TargetError, *SchemaMissingError, *GrantError, *ConnectError when the server
// could not be reached within StartTimeout, ErrSubscriberClosed.
//
// When ctx ends the buckets are drained and given back and the channel is
// closed, as by Close.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if err := s.prepare(ctx, topic); err != nil {
		return nil, err
	}
	sub, err := newSubscription(ctx, s.node, &s.cfg, topic)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrSubscriberClosed
	}
	s.subs[sub] = struct{}{}
	s.running.Add(1)
	ctx, stop := context.WithCancel(ctx)
	go func() {
		select {
		case <-s.closing:
			stop()
		case <-ctx.Done():
		}
	}()
	go func() {
		defer s.running.Done()
		defer s.drop(sub)
		defer stop()
		sub.run(ctx)
	}()
	return sub.out, nil
}

// SubscribeInitialize ensures the topic's subscription, lease rows and
// checkpoints, and joins nothing. It runs no DDL. Its errors are Subscribe's.
func (s *Subscriber) SubscribeInitialize(topic string) error {
	return s.prepare(context.Background(), topic) //nolint:forbidigo // the interface has no context; StartTimeout bounds it
}

func (s *Subscriber) prepare(ctx context.Context, topic string) error {
	if err := checkSubscribeTopic(topic); err != nil {
		return err
	}
	if s.isClosed() {
		return ErrSubscriberClosed
	}
	err := s.node.start()
	if err == nil {
		err = s.node.ensure(ctx, &s.cfg, topic, s.closing)
	}
	if err != nil && s.isClosed() {
		return ErrSubscriberClosed // whatever the Close made of the attempt
	}
	return err
}

func (s *Subscriber) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

func (s *Subscriber) drop(sub *subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.subs, sub)
	s.drains = append(s.drains, sub.drainErrors()...)
}

// DrainErrors are the handlers and hooks that outlived their drain timeout when
// this Subscriber was closed, joined: *DrainError, *HookError. Nil when there were none.
func (s *Subscriber) DrainErrors() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.drains...)
}

// Close takes no new events, waits up to DrainTimeout for running handlers,
// writes their checkpoints, gives the buckets back, and closes all channels
// once. Handlers and hooks that outlive that are reported as *DrainError and
// *HookError through NodeConfig.OnError and by DrainErrors; Close itself returns
// nil then, as nothing is lost. While the database does not answer it tries for
// some 10 s more to write. It is idempotent: all calls return together.
func (s *Subscriber) Close() error {
	s.closeOnce.Do(func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		close(s.closing)
		s.running.Wait()
		if s.private {
			s.closeErr = s.node.Close()
		}
	})
	return s.closeErr
}

// Status tells what this Subscriber holds, for health checks and people.
func (s *Subscriber) Status() []SubscriptionStatus {
	s.mu.Lock()
	subs := slices.Collect(maps.Keys(s.subs))
	s.mu.Unlock()
	statuses := make([]SubscriptionStatus, 0, len(subs))
	for _, sub := range subs {
		statuses = append(statuses, sub.status())
	}
	return statuses
}

// String names the Subscriber in metrics and logs.
func (s *Subscriber) String() string { return "suisha." + s.cfg.ConsumerGroup }

// checkSubscribeTopic refuses what can be no category, before anything is asked.
func checkSubscribeTopic(topic string) error {
	if topic == AllStreams {
		return nil
	}
	return checkTopic(topic)
}
