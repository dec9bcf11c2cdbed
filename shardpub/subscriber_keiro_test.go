package shardpub_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/lease"
	"github.com/suisha-go/suisha/shardpub"
)

// S-11, S-12: the bucket of a stream is what PostgreSQL computes for kiroku's
// consumer groups, also of a linked event: that of the stream it was written to.
func TestBucketsAreThoseOfKirokusOwnExpression(t *testing.T) {
	t.Parallel()
	const n = 7
	r := newRig(t)
	r.appendRound(orders, 300)
	r.appendRound(orders, 300)
	var seen diary
	serve(r.subscribe(r.subscriber(shards(n)), orders), handleWith(&seen))
	r.until("all are handled", func() bool { return seen.len() >= 600 })
	rows, err := r.pool.Query(t.Context(), `select s.stream_name,
		((((hashtextextended(se.original_stream_id::text, 0) % $1) + $1) % $1))::int
		from kiroku.stream_events se join kiroku.streams s on s.stream_id = se.original_stream_id where se.stream_id = 0`, n)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{}
	var stream string
	var bucket int
	if _, err := pgx.ForEachRow(rows, []any{&stream, &bucket}, func() error { want[stream] = bucket; return nil }); err != nil {
		t.Fatal(err)
	}
	used := map[int]bool{}
	for _, d := range seen.all() {
		used[d.Bucket] = true
		if b, ok := want[d.Stream]; !ok || d.Bucket != b || d.Shards != n {
			t.Errorf("%s was delivered from bucket %d of %d, PostgreSQL says %d of %d", d.Stream, d.Bucket, d.Shards, b, n)
		}
	}
	if len(want) != 300 || len(used) != n {
		t.Errorf("%d streams in %d buckets", len(want), len(used))
	}
	seen.onceInOrder(t, 600)
}

// S-13: a moved bucket resumes at its own row, wherever the others stand.
func TestMovedBucketResumesAtItsOwnCheckpoint(t *testing.T) {
	t.Parallel()
	const n = 4
	r := newRig(t)
	r.appendRound(orders, 40)
	r.appendRound(orders, 40)
	if err := r.subscriber(shards(n)).SubscribeInitialize(orders); err != nil {
		t.Fatal(err)
	}
	at := map[int]int64{0: 13, 1: 0, 2: 80, 3: 41}
	for bucket, position := range at {
		if err := kiroku.SaveCheckpoint(t.Context(), r.pool, group, bucket, kiroku.Position(position)); err != nil {
			t.Fatal(err)
		}
	}
	want := 80 - r.covered(n)
	var seen diary
	a := r.subscriber(shards(n))
	var once sync.Once
	serve(r.subscribe(a, orders), func(msg *message.Message) error {
		if seen.note(msg); seen.len() >= 5 {
			once.Do(func() { go func() { _ = a.Close() }() }) // the rest is another's
			time.Sleep(20 * time.Millisecond)                 // not all of it before that begins
		}
		return nil
	})
	serve(r.subscribe(r.elsewhere(shards(n)), orders), handleWith(&seen))
	r.until("all are handled", func() bool { return seen.len() >= want })
	r.until("and settled", func() bool { return r.covered(n) == 80 })
	if len(seen.all()) != want {
		t.Errorf("%d deliveries, want %d", seen.len(), want)
	}
	workers := map[uuid.UUID]bool{}
	for _, d := range seen.all() {
		workers[d.Worker] = true
		if d.Position <= at[d.Bucket] {
			t.Errorf("bucket %d delivered position %d, its checkpoint was %d", d.Bucket, d.Position, at[d.Bucket])
		}
	}
	if len(workers) != 2 {
		t.Errorf("%d workers took part", len(workers))
	}
}

// S-04: the edges of what is allowed work end to end.
func TestEdgesOfWhatIsAllowedWork(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *shardpub.NodeConfig) {
		c.Lease.TTL, c.Lease.RenewInterval = 20*time.Second, 10*time.Second
		c.DirectorySize = 1
	})
	r.appendTo("orders-1", 1)
	for range 5 {
		r.appendRound(orders, 20)
	}
	sub := r.subscriber(func(c *shardpub.SubscriberConfig) {
		c.Retry = shardpub.RetryPolicy{MaxDeliveries: 1, Delay: shardpub.NoDelay}
		c.BatchSize, c.PrefetchCount, c.PrefetchBytes, c.MaxInFlight = 1, 1, 1, 1
		c.CheckpointInterval = 1
	})
	var seen diary
	done := serve(r.subscribe(sub, orders), func(msg *message.Message) error {
		if d := seen.note(msg); d.Position == 1 {
			return errBoom
		}
		return nil
	})
	r.reaches(101)
	if err := sub.Close(); err != nil {
		t.Fatal(err)
	}
	<-done
	seen.onceInOrder(t, 101)
	if letters := r.letters(); len(letters) != 1 || letters[0].Attempts != 1 || letters[0].Position != 1 {
		t.Errorf("letters %+v", letters)
	}
}

// S-66: 64 buckets with a handler running in each hold no connection; the Node has
// three in all, and none of the caller's pool.
func TestNoConnectionIsHeldPerBucket(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := r.pool.Config()
	cfg.ConnConfig.RuntimeParams["application_name"] = "the worker"
	pool := newPool(t, cfg)
	for range 4 {
		r.appendRound(orders, 640)
	}
	node, _ := r.newNode(pool)
	sub := r.subscriber(on(node), shards(64))
	release := make(chan struct{})
	var out gauge
	done := serve(r.subscribe(sub, orders), func(msg *message.Message) error {
		out.enter()
		defer out.leave()
		select {
		case <-release:
		case <-msg.Context().Done():
		}
		return nil
	})
	count := func() int {
		return ask[int](r, `select count(*) from pg_stat_activity where datname = current_database() and application_name = 'the worker'`)
	}
	most := 0
	r.until("a handler runs in each bucket", func() bool { most = max(most, count()); return out.now.Load() == 64 })
	close(release)
	r.until("all are settled", func() bool { most = max(most, count()); return r.covered(64) == 4*640 })
	if err := sub.Close(); err != nil {
		t.Error(err)
	}
	<-done
	if most > 3 || most == 0 {
		t.Errorf("%d connections at once, want 3 at the most", most)
	}
	if n := pool.Stat().TotalConns(); n != 0 {
		t.Errorf("%d connections of the caller's pool were opened", n)
	}
}

// S-32, S-65: beats that fail for a while lose nothing while the lease is trusted:
// what is held goes on to be handled, and no bucket changes hands.
func TestMissedRenewalsLoseNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *shardpub.NodeConfig) { c.Lease.TTL, c.Lease.RenewInterval = 12*time.Second, 2*time.Second })
	sub := r.subscriber(shards(4))
	var seen diary
	done := serve(r.subscribe(sub, orders), handleWith(&seen))
	r.subscribe(r.elsewhere(shards(8), func(c *shardpub.SubscriberConfig) { c.ConsumerGroup = "other" }), orders)
	r.until("it owns all", func() bool {
		return ask[int](r, `select count(*) from keiro.keiro_subscription_shards where subscription_name = $1 and owner_worker_id is not null`, group) == 4
	})
	before := ask[string](r, `select string_agg(owner_worker_id::text, ',' order by bucket) from keiro.keiro_subscription_shards where subscription_name = $1`, group)
	tx, err := r.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), `lock table suisha.workers in exclusive mode`); err != nil {
		t.Fatal(err)
	}
	r.until("a beat is missed", func() bool { return sub.Status()[0].Lease.LastError != nil })
	r.appendRound(orders, 40)
	r.until("all are handled meanwhile", func() bool { return seen.len() >= 40 })
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.until("it beats again", func() bool { return sub.Status()[0].Lease.LastError == nil })
	r.appendRound(orders, 40)
	r.until("the rest is handled", func() bool { return r.covered(4) == 80 })
	after := ask[string](r, `select string_agg(owner_worker_id::text, ',' order by bucket) from keiro.keiro_subscription_shards where subscription_name = $1`, group)
	if n := len(r.said.observed(shardpub.BucketRevoked)); n != 0 || after != before {
		t.Errorf("%d buckets were given up", n)
	}
	if err := sub.Close(); err != nil {
		t.Error(err)
	}
	<-done
	seen.onceInOrder(t, 80)
}

// S-36: a wrong idea of who lives costs moves, never events; the next beats
// correct it.
func TestWorkerThatWasNeverThereCostsNoEvent(t *testing.T) {
	t.Parallel()
	r := newRig(t, quick)
	sub := r.subscriber(shards(4))
	var seen diary
	done := serve(r.subscribe(sub, orders), handleWith(&seen))
	r.until("it owns all", func() bool { return r.owned() == 4 })
	r.exec(`insert into suisha.workers (subscription, worker, host, pid, version, session, weight, joined_at, heartbeat_at, expires_at)
		values ($1, gen_random_uuid(), 'ghost', 1, '', false, 1, clock_timestamp(), clock_timestamp(), clock_timestamp() + interval '2 s')`, group)
	appended := 0
	revoked := func() int { return len(r.said.observed(shardpub.BucketRevoked)) }
	r.until("buckets are given toward it", func() bool { r.appendRound(orders, 20); appended += 20; return revoked() == 2 })
	r.until("they come back", func() bool { return r.owned() == 4 })
	r.appendRound(orders, 20)
	appended += 20
	r.until("all are settled", func() bool { return r.covered(4) == appended })
	if err := sub.Close(); err != nil {
		t.Error(err)
	}
	<-done
	seen.onceInOrder(t, appended)
	for _, e := range r.said.observed(shardpub.BucketRevoked)[:2] {
		if e.Reason != lease.Rebalanced {
			t.Errorf("bucket %d went: %s", e.Bucket, e.Reason)
		}
	}
}
