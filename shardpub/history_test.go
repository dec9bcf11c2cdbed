package shardpub_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/suisha-go/suisha/lease"
	"github.com/suisha-go/suisha/shardpub"
)

// patientLease outlives the outages of these tests.
func patientLease(c *shardpub.NodeConfig) {
	c.Lease = lease.Config{TTL: 20 * time.Second, RenewInterval: 2 * time.Second}
}

// lose takes the events of orders-1 beyond the first out of the log, as a
// promoted standby that had not got them. Others may come in their places.
func (r *rig) lose() {
	r.t.Helper()
	err := pgx.BeginFunc(r.t.Context(), r.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(r.t.Context(), `set local kiroku.enable_hard_deletes = 'on';
			delete from kiroku.stream_events where stream_version >= 2;
			delete from kiroku.events e where not exists (select from kiroku.stream_events s where s.event_id = e.event_id);
			update kiroku.streams set stream_version = 1;
			update kiroku.subscriptions set last_seen = least(last_seen, 1)`)
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// gets handles messages until the position came, and wants the others to have
// come by then.
func gets(t *testing.T, ch <-chan *message.Message, until int64, others ...int64) {
	t.Helper()
	seen := map[int64]bool{}
	for !seen[until] {
		m := receive(t, ch)
		seen[deliveryOf(t, m).Position] = true
		m.Ack()
	}
	for _, p := range others {
		if !seen[p] {
			t.Errorf("the event at position %d was skipped; came: %v", p, seen)
		}
	}
}

// What was settled in a log that is no more must not be written over the one
// that took its place, however soon the checkpoint is due (P-31).
func TestMarksOfALostHistoryAreNotWritten(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := &wire{}
	node, said := r.newNode(w.pool(r), quick, patientLease, func(c *shardpub.NodeConfig) { c.PollInterval = 5 * time.Second })
	r.appendTo("orders-1", 3)
	messages := r.subscribe(r.subscriber(on(node)), orders)
	receive(t, messages).Ack()
	r.reaches(1)
	second := receive(t, messages)
	w.cut()
	r.lose()
	r.appendTo("orders-1", 3) // positions 2 to 4 of the new history
	second.Ack()
	time.Sleep(time.Second) // the flusher is waiting for a connection
	w.mend()
	gets(t, messages, 4, 2, 3)
	if _, ok := reported[*shardpub.HistoryError](said); !ok {
		t.Error("nothing was reported")
	}
}

// The same for the checkpoint that goes with a dead letter, and for the one of a
// release: the bucket is not given back as if it had got that far.
func TestLettersAndReleasesOfALostHistoryAreNotWritten(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := &wire{}
	node, _ := r.newNode(w.pool(r), quick, patientLease, func(c *shardpub.NodeConfig) { c.PollInterval = 5 * time.Second })
	lazy := func(c *shardpub.SubscriberConfig) { c.CheckpointInterval = time.Hour }
	r.appendTo("orders-1", 3)
	parks := r.subscriber(on(node), lazy, retry(shardpub.RetryPolicy{MaxDeliveries: 1}))
	parked := r.subscribe(parks, orders)
	releases := r.subscriber(on(node), lazy, func(c *shardpub.SubscriberConfig) { c.ConsumerGroup = "releases" })
	released := r.subscribe(releases, orders)
	for _, ch := range []<-chan *message.Message{parked, released} {
		receive(t, ch).Ack()
		receive(t, ch).Ack()
	}
	poison := receive(t, parked)
	receive(t, released).Ack()
	w.cut()
	r.lose()
	r.appendTo("orders-1", 3)
	poison.Nack()
	closed := make(chan struct{})
	go func() { defer close(closed); _ = releases.Close() }()
	time.Sleep(500 * time.Millisecond) // both are trying to write
	w.mend()
	gets(t, parked, 4, 2, 3)
	<-closed
	if n := len(r.letters()); n > 0 {
		t.Errorf("%d dead letters of events that never were", n)
	}
	if at := ask[int64](r, `select coalesce(max(last_seen), 0) from kiroku.subscriptions where subscription_name = 'releases'`); at > 1 {
		t.Errorf("released at %d of another log", at)
	}
}

// A cursor that has not moved since the bucket came is known again, too (P-31).
func TestCursorAtTheStartIsKnownAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := &wire{}
	r.appendTo("orders-1", 3)
	first := r.subscriber()
	gets(t, r.subscribe(first, orders), 3)
	r.reaches(3)
	_ = first.Close()
	node, _ := r.newNode(w.pool(r), quick, patientLease)
	sub := r.subscriber(on(node))
	messages := r.subscribe(sub, orders)
	r.until("the bucket is read on", func() bool {
		st := sub.Status()[0]
		return len(st.Buckets) == 1 && st.Buckets[0].Read == 3
	})
	w.cut()
	r.lose()
	r.appendTo("orders-1", 3)
	w.mend()
	gets(t, messages, 4, 2, 3)
}

// A bucket whose OnAssigned runs while the log changes begins again like all
// others (P-31).
func TestBucketsThatOpenWhileTheLogChangesBeginAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := &wire{}
	r.appendTo("orders-1", 3)
	first := r.subscriber()
	gets(t, r.subscribe(first, orders), 3)
	r.reaches(3)
	_ = first.Close()
	node, said := r.newNode(w.pool(r), quick, patientLease)
	inside, leave := make(chan struct{}, 8), make(chan struct{})
	messages := r.subscribe(r.subscriber(on(node), func(c *shardpub.SubscriberConfig) {
		c.OnAssigned = func(context.Context, shardpub.Assignment) { inside <- struct{}{}; <-leave }
	}), orders)
	answer(t, inside)
	w.cut()
	r.lose()
	r.appendTo("orders-1", 3)
	w.mend()
	r.until("the change is reported", func() bool {
		_, ok := reported[*shardpub.HistoryError](said)
		return ok
	})
	close(leave)
	gets(t, messages, 4, 2, 3)
}

// A bucket that drains is known again like one that is read, also when it is the
// last (P-31).
func TestLastReleaseOfALostHistoryIsNotWritten(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := &wire{}
	node, said := r.newNode(w.pool(r), quick, patientLease)
	r.appendTo("orders-1", 3)
	sub := r.subscriber(on(node), func(c *shardpub.SubscriberConfig) { c.CheckpointInterval = time.Hour })
	ch := r.subscribe(sub, orders)
	receive(t, ch).Ack()
	receive(t, ch).Ack()
	third := receive(t, ch)
	w.cut()
	r.lose()
	r.appendTo("orders-1", 3) // 2..4 of the new history
	closed := make(chan struct{})
	go func() { defer close(closed); _ = sub.Close() }()
	time.Sleep(200 * time.Millisecond)
	third.Ack()
	time.Sleep(300 * time.Millisecond)
	w.mend()
	<-closed
	_, noticed := reported[*shardpub.HistoryError](said)
	if at := r.checkpoint(0); at > 1 {
		t.Errorf("released at %d of another log; noticed: %v", at, noticed)
	}
}

// The log can change without a reconnect: behind a pooler that fails over, or when
// a dump is restored in place. The feed sees it at the cursor (P-31).
func TestLogThatChangesBehindALivingConnectionIsNoticed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	node, said := r.newNode(r.pool, quick, patientLease, func(c *shardpub.NodeConfig) { c.DisableSession = true; c.PollInterval = 200 * time.Millisecond })
	r.appendTo("orders-1", 3)
	ch := r.subscribe(r.subscriber(on(node)), orders)
	gets(t, ch, 3)
	r.reaches(3)
	r.lose()
	r.appendTo("orders-1", 3)
	gets(t, ch, 4, 2, 3)
	if _, ok := reported[*shardpub.HistoryError](said); !ok {
		t.Error("nothing was reported")
	}
}

// lookupGate holds the next read of keys on one database.
type lookupGate struct {
	db      string
	armed   atomic.Bool
	reached chan struct{}
	open    chan struct{}
}

func (g *lookupGate) TraceQueryStart(ctx context.Context, c *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	if c.Config().Database == g.db && strings.Contains(d.SQL, "(stream_id, stream_version) >= (0, $1)") && g.armed.CompareAndSwap(true, false) {
		close(g.reached)
		<-g.open
	}
	return ctx
}
func (g *lookupGate) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A page that was asked for on a connection to the old server, and answered after
// the change was noticed, leaves nothing behind: stream ids are given out anew
// (P-27, P-31).
func TestPageOfAnOldServerLeavesNothingInTheNewDirectory(t *testing.T) {
	t.Parallel()
	a, b := newRig(t), newRig(t) // two servers: the old and its successor
	g := &lookupGate{db: a.pool.Config().ConnConfig.Database, reached: make(chan struct{}), open: make(chan struct{})}
	var moved atomic.Bool
	cfg := a.pool.Config()
	cfg.ConnConfig.Tracer = g
	cfg.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		if moved.Load() {
			c.Database = b.pool.Config().ConnConfig.Database
		}
		return nil
	}
	node, said := a.newNode(newPool(t, cfg), quick, patientLease, func(c *shardpub.NodeConfig) { c.PollInterval = 100 * time.Millisecond })
	if err := b.subscriber().SubscribeInitialize(orders); err != nil {
		t.Fatal(err)
	}
	a.appendTo("orders-1", 1)
	ch := a.subscribe(a.subscriber(on(node)), orders)
	gets(t, ch, 1)
	a.reaches(1)
	g.armed.Store(true)
	<-g.reached
	a.appendTo("other-1", 1) // stream 2 of the old log
	moved.Store(true)
	b.appendTo("orders-1", 1)
	b.appendTo("orders-2", 1) // stream 2 of the new log
	const id = `select stream_id from kiroku.streams where stream_name = $1`
	if x, y := ask[int64](a, id, "other-1"), ask[int64](b, id, "orders-2"); x != y {
		t.Fatalf("ids %d and %d", x, y)
	}
	a.exec(`select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()
		and pid <> pg_backend_pid() and (query ilike 'listen%' or query like '%suisha.workers%')`)
	a.until("the change is noticed", func() bool { _, ok := reported[*shardpub.HistoryError](said); return ok })
	close(g.open)
	b.appendTo("orders-1", 1)
	gets(t, ch, 3, 1, 2)
}

// The session leaves an old server that answers still, once another connection
// found the new one: it would claim there what is worked on here (P-31).
func TestSessionFollowsToTheNewServer(t *testing.T) {
	t.Parallel()
	a, b := newRig(t), newRig(t)
	var moved atomic.Bool
	cfg := a.pool.Config()
	cfg.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		if moved.Load() {
			c.Database = b.pool.Config().ConnConfig.Database
		}
		return nil
	}
	node, said := a.newNode(newPool(t, cfg), quick, patientLease, func(c *shardpub.NodeConfig) { c.PollInterval = 100 * time.Millisecond })
	if err := b.subscriber().SubscribeInitialize(orders); err != nil {
		t.Fatal(err)
	}
	a.appendTo("orders-1", 1)
	ch := a.subscribe(a.subscriber(on(node)), orders)
	gets(t, ch, 1)
	a.reaches(1)
	b.appendTo("orders-1", 1)
	moved.Store(true)
	a.exec(`select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()
		and pid <> pg_backend_pid() and not (query ilike 'listen%' or query like '%suisha.workers%' or query like '%suisha.ownership_log%' or query like '%Takes those of the wanted%')`)
	a.until("the change is noticed", func() bool { _, ok := reported[*shardpub.HistoryError](said); return ok })
	serve(ch, func(*message.Message) error { return nil })
	until(t, "the new log is worked on", func() bool { return b.checkpoint(0) == 1 })
}
