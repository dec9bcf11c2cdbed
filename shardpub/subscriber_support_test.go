package shardpub_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/internal/pgtest"
	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/middleware"
	"github.com/suisha-go/suisha/shardpub"
)

// patience is how long a test waits for what must happen.
const patience = 60 * time.Second

// group is the name of the subscription in these tests, orders its topic.
const (
	group  = "billing"
	orders = "orders"
)

// rig is a store, a Node on it, and what that says.
type rig struct {
	t    *testing.T
	pool *pgxpool.Pool
	node *shardpub.Node
	said *sayings
}

// newRig migrates a database and makes a Node with keiro's leases on it.
func newRig(t *testing.T, change ...func(*shardpub.NodeConfig)) *rig {
	t.Helper()
	r := &rig{t: t, pool: pgtest.New(t, shardpub.Migrate)}
	r.node, r.said = r.newNode(r.pool, change...)
	return r
}

// newNode makes another Node, as another process would have.
func (r *rig) newNode(pool *pgxpool.Pool, change ...func(*shardpub.NodeConfig)) (*shardpub.Node, *sayings) {
	r.t.Helper()
	said := &sayings{}
	cfg := shardpub.NodeConfig{PollInterval: time.Second, OnError: said.error, Observe: said.event}
	for _, f := range change {
		f(&cfg)
	}
	node, err := shardpub.NewNode(pool, cfg, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := node.Close(); err != nil {
			r.t.Error(err)
		}
	})
	return node, said
}

// config is one bucket under the group's name, with quick retries.
func (r *rig) config(change ...func(*shardpub.SubscriberConfig)) shardpub.SubscriberConfig {
	cfg := shardpub.SubscriberConfig{
		ConsumerGroup:    group,
		SubscriptionName: shardpub.ExactName,
		Shards:           1,
		Retry:            shardpub.RetryPolicy{Delay: 5 * time.Millisecond},
		StartTimeout:     patience,
		Node:             r.node,
	}
	for _, f := range change {
		f(&cfg)
	}
	return cfg
}

func (r *rig) subscriber(change ...func(*shardpub.SubscriberConfig)) *shardpub.Subscriber {
	r.t.Helper()
	sub, err := shardpub.NewSubscriber(nil, r.config(change...), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := sub.Close(); err != nil {
			r.t.Error(err)
		}
	})
	return sub
}

func (r *rig) subscribe(sub *shardpub.Subscriber, topic string) <-chan *message.Message {
	r.t.Helper()
	ch, err := sub.Subscribe(r.t.Context(), topic)
	if err != nil {
		r.t.Fatal(err)
	}
	return ch
}

// shards and others change one option of a config.
func shards(n int) func(*shardpub.SubscriberConfig) {
	return func(c *shardpub.SubscriberConfig) { c.Shards = n }
}

func retry(p shardpub.RetryPolicy) func(*shardpub.SubscriberConfig) {
	return func(c *shardpub.SubscriberConfig) { c.Retry = p }
}

func on(n *shardpub.Node) func(*shardpub.SubscriberConfig) {
	return func(c *shardpub.SubscriberConfig) { c.Node = n }
}

func drain(d time.Duration) func(*shardpub.SubscriberConfig) {
	return func(c *shardpub.SubscriberConfig) { c.DrainTimeout = d }
}

// appendTo appends n numbered events and returns the position of the last.
func (r *rig) appendTo(stream string, n int) kiroku.Position {
	r.t.Helper()
	var events []kiroku.Event
	for i := range n {
		events = append(events, kiroku.Event{Type: "Counted", Data: fmt.Appendf(nil, `{"n": %d}`, i+1)})
	}
	out, err := kiroku.Append(r.t.Context(), r.pool, kiroku.StreamAppend{Stream: stream, Events: events})
	if err != nil {
		r.t.Fatalf("append to %q: %v", stream, err)
	}
	return out[0].Position
}

// appendRound appends one event to each of n streams of a category.
func (r *rig) appendRound(category string, n int) {
	r.t.Helper()
	var appends []kiroku.StreamAppend
	for i := range n {
		appends = append(appends, kiroku.StreamAppend{
			Stream: fmt.Sprintf("%s-%d", category, i),
			Events: []kiroku.Event{{Type: "Counted", Data: []byte(`{"n": 0}`)}},
		})
	}
	if _, err := kiroku.Append(r.t.Context(), r.pool, appends...); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) exec(sql string, args ...any) {
	r.t.Helper()
	if _, err := r.pool.Exec(r.t.Context(), sql, args...); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
}

// ask scans one value.
func ask[T any](r *rig, sql string, args ...any) T {
	r.t.Helper()
	var v T
	if err := r.pool.QueryRow(r.t.Context(), sql, args...).Scan(&v); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func (r *rig) until(what string, holds func() bool) { r.t.Helper(); until(r.t, what, holds) }

// until polls a condition.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// owned counts the buckets that somebody owns.
func (r *rig) owned() int {
	r.t.Helper()
	return ask[int](r, `select count(*) from keiro.keiro_subscription_shards where owner_worker_id is not null`)
}

// checkpoint is what a bucket's row holds.
func (r *rig) checkpoint(bucket int) kiroku.Position {
	r.t.Helper()
	return kiroku.Position(ask[int64](r,
		`select last_seen from kiroku.subscriptions where subscription_name = $1 and consumer_group_member = $2`, group, bucket))
}

// reaches waits for the checkpoint of bucket 0.
func (r *rig) reaches(p kiroku.Position) {
	r.t.Helper()
	r.until(fmt.Sprintf("the checkpoint reaches %d", p), func() bool { return r.checkpoint(0) >= p })
}

// covered counts the events of orders that lie at or below their bucket's
// checkpoint.
func (r *rig) covered(n int) int {
	r.t.Helper()
	return ask[int](r, `select count(*) from kiroku.stream_events e
		join kiroku.streams s on s.stream_id = e.original_stream_id and s.category = $1
		join kiroku.subscriptions c on c.subscription_name = $2
			and c.consumer_group_member = (((hashtextextended(s.stream_id::text, 0) % $3) + $3) % $3)
		where e.stream_id = 0 and e.stream_version <= c.last_seen`, orders, group, n)
}

// letters are the dead letters of the subscription, oldest first.
func (r *rig) letters() []kiroku.DeadLetter {
	r.t.Helper()
	letters, _, err := kiroku.ListDeadLetters(r.t.Context(), r.pool, kiroku.DeadLetterFilter{Subscription: group})
	if err != nil {
		r.t.Fatal(err)
	}
	slices.Reverse(letters)
	return letters
}

// sayings is what a Node reported and what it let be observed.
type sayings struct {
	mu     sync.Mutex
	errs   []error
	events []shardpub.Event
}

func (s *sayings) error(_ context.Context, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errs = append(s.errs, err)
}

func (s *sayings) event(e shardpub.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
}

func (s *sayings) errors() []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.errs)
}

func (s *sayings) observed(kind shardpub.EventKind) []shardpub.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.events), func(e shardpub.Event) bool { return e.Kind != kind })
}

// reported finds an error of that type among what was said.
func reported[E error](s *sayings) (E, bool) {
	var want E
	for _, err := range s.errors() {
		if errors.As(err, &want) {
			return want, true
		}
	}
	return want, false
}

// receive takes the next message.
func receive(t *testing.T, ch <-chan *message.Message) *message.Message {
	t.Helper()
	select {
	case msg, ok := <-ch:
		if !ok {
			t.Fatal("the channel is closed")
		}
		return msg
	case <-time.After(patience):
		t.Fatal("no message")
		return nil
	}
}

// ends waits until a channel is closed.
func ends[T any](t *testing.T, what string, ch <-chan T) {
	t.Helper()
	select {
	case _, ok := <-ch:
		if ok {
			t.Fatalf("%s: something came", what)
		}
	case <-time.After(patience):
		t.Fatalf("%s does not end", what)
	}
}

func deliveryOf(t *testing.T, msg *message.Message) shardpub.Delivery {
	t.Helper()
	d, ok := shardpub.DeliveryFromContext(msg.Context())
	if !ok {
		t.Fatal("no delivery in the message's context")
	}
	return d
}

// serve runs a handler for each message, as Watermill's router does, and marks
// what it returns. The result is closed when the channel is and all have ended.
func serve(ch <-chan *message.Message, handle func(*message.Message) error) <-chan struct{} {
	h := middleware.Mark()(func(msg *message.Message) ([]*message.Message, error) { return nil, handle(msg) })
	done := make(chan struct{})
	go func() {
		defer close(done)
		var running sync.WaitGroup
		defer running.Wait()
		for msg := range ch {
			running.Go(func() {
				if _, err := h(msg); err != nil {
					msg.Nack()
					return
				}
				msg.Ack()
			})
		}
	}()
	return done
}

// diary is what handlers saw, in order.
type diary struct {
	mu   sync.Mutex
	seen []shardpub.Delivery
}

func (d *diary) note(msg *message.Message) shardpub.Delivery {
	delivery, _ := shardpub.DeliveryFromContext(msg.Context())
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen = append(d.seen, delivery)
	return delivery
}

// handleWith notes each message and is content.
func handleWith(d *diary) func(*message.Message) error {
	return func(msg *message.Message) error {
		d.note(msg)
		return nil
	}
}

func (d *diary) all() []shardpub.Delivery {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.seen)
}

func (d *diary) len() int { return len(d.all()) }

// onceInOrder fails the test unless each of the events was seen once and each
// stream in order.
func (d *diary) onceInOrder(t *testing.T, want int) {
	t.Helper()
	last := map[string]int64{}
	seen := d.all()
	for _, s := range seen {
		if s.Version != last[s.Stream]+1 {
			t.Errorf("%s: version %d after %d", s.Stream, s.Version, last[s.Stream])
		}
		last[s.Stream] = s.Version
	}
	if len(seen) != want {
		t.Errorf("%d deliveries, want %d", len(seen), want)
	}
}

func newPool(t *testing.T, cfg *pgxpool.Config) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// bucketOf is the one bucket that a Subscriber holds, none before it does.
func bucketOf(sub *shardpub.Subscriber) (b shardpub.BucketStatus) {
	for _, s := range sub.Status() {
		for _, b := range s.Buckets {
			return b
		}
	}
	return b
}

// queued is how many events wait in a Subscriber's buckets, those that are out included.
func queued(sub *shardpub.Subscriber) (n int) {
	for _, s := range sub.Status() {
		for _, b := range s.Buckets {
			n += b.Queued
		}
	}
	return n
}
