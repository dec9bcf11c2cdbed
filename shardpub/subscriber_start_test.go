package shardpub_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/internal/pgtest"
	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/lease"
	"github.com/suisha-go/suisha/shardpub"
)

// world is all that a start may write, without times.
func (r *rig) world() string {
	r.t.Helper()
	return ask[string](r, `select concat_ws(E'\n',
		(select string_agg(concat_ws(' ', subscription_name, bucket, shard_count, owner_worker_id), ';' order by 1, bucket) from keiro.keiro_subscription_shards),
		(select string_agg(concat_ws(' ', name, target, shards, filter), ';' order by name) from suisha.subscriptions),
		(select string_agg(concat_ws(' ', subscription_name, consumer_group_member, last_seen), ';' order by 1) from kiroku.subscriptions),
		(select string_agg(worker::text, ';' order by worker) from suisha.workers),
		(select count(*) from suisha.ownership_log), (select count(*) from kiroku.dead_letters))`)
}

// elsewhere is a Subscriber of another process.
func (r *rig) elsewhere(change ...func(*shardpub.SubscriberConfig)) *shardpub.Subscriber {
	r.t.Helper()
	node, _ := r.newNode(r.pool)
	return r.subscriber(append(change, on(node))...)
}

// P-2: by default each topic has a subscription of its own.
func TestOneSubscriberOnTwoTopicsLosesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.subscriber(shards(4), func(c *shardpub.SubscriberConfig) { c.SubscriptionName = nil })
	for range 3 {
		r.appendRound(orders, 20)
		r.appendRound("bills", 20)
	}
	var seen diary
	both := []<-chan struct{}{
		serve(r.subscribe(sub, orders), handleWith(&seen)), serve(r.subscribe(sub, "bills"), handleWith(&seen)),
	}
	for range 2 {
		r.appendRound(orders, 20)
		r.appendRound("bills", 20)
	}
	r.until("all are handled", func() bool { return seen.len() >= 200 })
	if err := sub.Close(); err != nil {
		t.Fatal(err)
	}
	for _, done := range both {
		<-done
	}
	seen.onceInOrder(t, 200)
	for _, d := range seen.all() {
		if want := group + "." + kiroku.CategoryOf(d.Stream); d.Subscription != want || d.Category != kiroku.CategoryOf(d.Stream) {
			t.Fatalf("%s was delivered to %q on %q", d.Stream, d.Subscription, d.Category)
		}
	}
}

// P-1, S-22: a name belongs to one topic and one number of shards; another
// process that sees it otherwise is told so before it claims anything.
func TestNameOfAnotherTopicOrNumberIsRefusedAndNothingIsWritten(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.subscribe(r.subscriber(shards(4)), orders)
	r.until("the first owns all", func() bool { return r.owned() == 4 })
	before := r.world()

	_, err := r.elsewhere(shards(4)).Subscribe(t.Context(), "bills")
	var target *lease.TargetError
	if !errors.As(err, &target) || target.Subscription != group || target.Configured != "bills" || target.Found != orders {
		t.Errorf("another topic: %v", err)
	}
	_, err = r.elsewhere(shards(6)).Subscribe(t.Context(), orders)
	var count *lease.ShardCountError
	if !errors.As(err, &count) || count.Configured != 6 || fmt.Sprint(count.Found) != "[4]" {
		t.Errorf("another number: %v", err)
	}
	both := r.elsewhere(shards(6)).SubscribeInitialize("bills")
	if !errors.As(both, &target) || !errors.As(both, &count) {
		t.Errorf("both: %v", both)
	}
	if after := r.world(); after != before {
		t.Errorf("it wrote: before\n%s\nafter\n%s", before, after)
	}
}

// P-4: a database without the schema, or with a part of it.
func TestMissingSchemaIsATypedErrorAndNothingIsMade(t *testing.T) {
	t.Parallel()
	for name, migrate := range map[string]pgtest.Migrate{"none": nil, "only kiroku": kiroku.Migrate, "only the leases": lease.Migrate} {
		pool := pgtest.New(t, migrate)
		tables := func() (n int) {
			if err := pool.QueryRow(t.Context(), `select count(*) from pg_class`).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		before := tables()
		sub, err := shardpub.NewSubscriber(pool, shardpub.SubscriberConfig{ConsumerGroup: group, Shards: 2}, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = sub.Subscribe(t.Context(), orders)
		var missing *shardpub.SchemaMissingError
		if !errors.As(err, &missing) || !strings.Contains(err.Error(), "shardpub.Migrate") {
			t.Errorf("%s: %v", name, err)
		}
		if after := tables(); after != before {
			t.Errorf("%s: %d tables became %d", name, before, after)
		}
		if err := sub.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestUnreachableServerIsAConnectErrorAfterStartTimeout(t *testing.T) {
	t.Parallel()
	const timeout = 300 * time.Millisecond
	sub, err := shardpub.NewSubscriber(nowhere(t), shardpub.SubscriberConfig{ConsumerGroup: group, Shards: 2, StartTimeout: timeout}, nil)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, err = sub.Subscribe(t.Context(), orders)
	var connect *shardpub.ConnectError
	if !errors.As(err, &connect) || connect.Subscription != group+"."+orders || connect.After < timeout || connect.Err == nil {
		t.Errorf("%v", err)
	}
	if took := time.Since(began); took < timeout || took > 10*timeout {
		t.Errorf("it took %s", took)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := sub.Subscribe(ctx, orders); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
	if err := sub.Close(); err != nil {
		t.Error(err)
	}
}

// P-4: a server that comes within StartTimeout is in time, and Close ends the
// wait for one that does not.
func TestSubscribeWaitsForAServerUntilItIsClosed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := r.pool.Config()
	var mu sync.Mutex
	up := false
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		if !up {
			return nil, &net.OpError{Op: "dial", Err: errors.New("not yet")}
		}
		return dial(ctx, network, addr)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	start := func() (*shardpub.Subscriber, chan error) {
		node, _ := r.newNode(pool)
		sub := r.subscriber(on(node))
		result := make(chan error, 1)
		go func() {
			_, err := sub.Subscribe(t.Context(), orders)
			result <- err
		}()
		return sub, result
	}
	_, later := start()
	given, closed := start()
	time.AfterFunc(300*time.Millisecond, func() { _ = given.Close() })
	if err := answer(t, closed); !errors.Is(err, shardpub.ErrSubscriberClosed) {
		t.Errorf("closed while it waits: %v", err)
	}
	mu.Lock()
	up = true
	mu.Unlock()
	if err := answer(t, later); err != nil {
		t.Errorf("a server that comes in time: %v", err)
	}
}

func answer[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatal("no answer")
		panic("unreachable")
	}
}

func TestTopicsThatAreNoCategoryAreRefusedBeforeAnySQL(t *testing.T) {
	t.Parallel()
	sub, err := shardpub.NewSubscriber(nowhere(t), shardpub.SubscriberConfig{ConsumerGroup: group, Shards: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, topic := range []string{"", "orders-v2", strings.Repeat("x", 600), "a\x00b", "\xff"} {
		_, err := sub.Subscribe(t.Context(), topic)
		var wrong *shardpub.TopicError
		if !errors.As(err, &wrong) {
			t.Errorf("%.10q: %v", topic, err)
		}
	}
	if err := sub.Close(); err != nil {
		t.Error(err)
	}
}

// S-21, S-4C, P-3: when Subscribe or SubscribeInitialize returns, each bucket has
// its row and its checkpoint, also where eight begin at once.
func TestEveryBucketHasItsCheckpointOnceSubscribeReturns(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if err := r.subscriber(shards(16)).SubscribeInitialize(orders); err != nil {
		t.Fatal(err)
	}
	rows := func(name string) (n int) {
		return ask[int](r, `select count(*) from keiro.keiro_subscription_shards s join kiroku.subscriptions c
			on c.subscription_name = s.subscription_name and c.consumer_group_member = s.bucket
			where s.subscription_name = $1 and c.last_seen = 0`, name)
	}
	if n := rows(group); n != 16 || r.owned() != 0 || ask[int](r, `select count(*) from suisha.workers`) != 0 {
		t.Errorf("SubscribeInitialize made %d rows, %d owned", n, r.owned())
	}
	var starting sync.WaitGroup
	for range 8 {
		sub := r.subscriber(shards(16), func(c *shardpub.SubscriberConfig) { c.ConsumerGroup = "other" })
		starting.Go(func() {
			if _, err := sub.Subscribe(t.Context(), orders); err != nil {
				t.Error(err)
				return
			}
			var n int
			err := r.pool.QueryRow(t.Context(), `select count(*) from kiroku.subscriptions where subscription_name = 'other'`).Scan(&n)
			if err != nil || n != 16 {
				t.Errorf("%d checkpoints when Subscribe returned, %v", n, err)
			}
		})
	}
	starting.Wait()
	if n := rows("other"); n != 16 {
		t.Errorf("%d rows", n)
	}
}

// L-26: all buckets start at one cut, though they are claimed later, and what is
// appended meanwhile is not skipped.
func TestFromHeadStartsAllBucketsAtOneCut(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.subscriber(shards(8), func(c *shardpub.SubscriberConfig) { c.Start = shardpub.FromHead() })
	r.appendRound(orders, 40)
	started := make(chan error, 1)
	go func() { started <- sub.SubscribeInitialize(orders) }()
	for len(started) == 0 {
		r.appendRound(orders, 40)
	}
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	cuts := ask[int](r, `select count(distinct last_seen) from kiroku.subscriptions`)
	cut := r.checkpoint(0)
	r.appendRound(orders, 40)
	if cuts != 1 || cut < 40 {
		t.Fatalf("%d cuts, at %d", cuts, cut)
	}
	want := int(headOf(t, r.pool) - cut)
	var seen diary
	done := serve(r.subscribe(sub, orders), handleWith(&seen))
	r.until("all behind the cut are handled", func() bool { return seen.len() >= want })
	if err := sub.Close(); err != nil {
		t.Fatal(err)
	}
	<-done
	if n := seen.len(); n != want {
		t.Errorf("%d deliveries, want %d", n, want)
	}
	for _, d := range seen.all() {
		if d.Position <= int64(cut) {
			t.Errorf("position %d was delivered, the cut is %d", d.Position, cut)
		}
	}
}

func TestStartCountsWhereThereIsNoCheckpoint(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.appendTo("orders-1", 10)
	start := func(p shardpub.StartPosition) func(*shardpub.SubscriberConfig) {
		return func(c *shardpub.SubscriberConfig) { c.Start = p }
	}
	before := r.world()
	_, err := r.subscriber(start(shardpub.MustExist())).Subscribe(t.Context(), orders)
	var missing *kiroku.CheckpointMissingError
	if !errors.As(err, &missing) || missing.Subscription != group || fmt.Sprint(missing.Members) != "[0]" {
		t.Errorf("a subscription that must exist: %v", err)
	}
	if after := r.world(); after != before {
		t.Errorf("it wrote: before\n%s\nafter\n%s", before, after)
	}
	first := r.subscriber(start(shardpub.FromPosition(7)))
	msg := receive(t, r.subscribe(first, orders))
	if d := deliveryOf(t, msg); d.Position != 8 {
		t.Errorf("the first is at %d, want 8", d.Position)
	}
	msg.Ack()
	r.reaches(8)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	// The checkpoint that there is has the say.
	for _, p := range []shardpub.StartPosition{shardpub.MustExist(), shardpub.FromHead(), shardpub.FromBeginning()} {
		sub := r.subscriber(start(p))
		msg := receive(t, r.subscribe(sub, orders))
		if d := deliveryOf(t, msg); d.Position <= 8 {
			t.Errorf("%v: the first is at %d", p, d.Position)
		}
		msg.Nack()
		if err := sub.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Who kills the only process and starts it again must not think that it hangs.
func TestWorkerThatWaitsForBucketsOfOthersSaysSo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, owned := range []bool{true, false} {
		t.Run(fmt.Sprintf("owned %v", owned), func(t *testing.T) {
			t.Parallel()
			category := fmt.Sprintf("owned%v", owned)
			log := watermill.NewCaptureLogger()
			node, err := shardpub.NewNode(r.pool, shardpub.NodeConfig{}, log)
			if err != nil {
				t.Fatal(err)
			}
			sub := r.subscriber(on(node), shards(2), func(c *shardpub.SubscriberConfig) {
				c.SubscriptionName = func(string, string) string { return category }
			})
			if err := sub.SubscribeInitialize(category); err != nil {
				t.Fatal(err)
			}
			if owned {
				r.exec(`update keiro.keiro_subscription_shards set owner_worker_id = '6f0b7a54-9f2e-4a57-8d0c-3d3a4a0d6f11', lease_expires_at = now() + interval '30 s'
					where subscription_name = $1`, category)
			}
			r.subscribe(sub, category)
			share := 2
			if owned {
				share = 1
			}
			said := func() bool {
				return log.Has(watermill.CapturedMessage{
					Level:  watermill.InfoLogLevel,
					Msg:    "No bucket yet: others have them. What a dead process had comes when its leases have run out, or sooner",
					Fields: watermill.LogFields{"subscription": category, "share": share, "ttl": 30 * time.Second},
				})
			}
			if owned {
				r.until("it is said", said)
			} else {
				time.Sleep(2500 * time.Millisecond)
				if said() {
					t.Error("it says that it has no bucket")
				}
			}
			if err := node.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
