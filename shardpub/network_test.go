package shardpub_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/lease"
	"github.com/suisha-go/suisha/shardpub"
)

// Connections that lead nowhere any more, without a word, hold nothing up for
// longer than a statement may take: the feed takes another.
func TestBlackHoleIsNoStall(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := &wire{}
	node, said := r.newNode(w.pool(r), quick, patientLease)
	messages := r.subscribe(r.subscriber(on(node)), orders)
	r.appendTo("orders-1", 1)
	receive(t, messages).Ack()
	r.reaches(1)
	w.freeze()
	r.appendTo("orders-1", 1)
	select {
	case m := <-messages:
		m.Ack()
	case <-time.After(time.Minute):
		_, read := reported[*shardpub.ReadError](said)
		t.Fatalf("the event does not come; ReadError reported: %v", read)
	}
	r.reaches(2)
}

// Large events are fetched about once, whatever small bound there is on what
// waits in memory (P-33).
func TestLargeEventsAreFetchedAboutOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const n, size = 60, 256 << 10
	events := make([]kiroku.Event, n)
	for i := range events {
		events[i] = kiroku.Event{Type: "Big", Data: []byte(`{"p":"` + strings.Repeat("x", size) + `"}`)}
	}
	if _, err := kiroku.Append(t.Context(), r.pool, kiroku.StreamAppend{Stream: "orders-1", Events: events}); err != nil {
		t.Fatal(err)
	}
	w := &wire{}
	node, _ := r.newNode(w.pool(r), quick)
	sub := r.subscriber(on(node), func(c *shardpub.SubscriberConfig) { c.PrefetchBytes = 1 << 20 })
	serve(r.subscribe(sub, orders), func(*message.Message) error { return nil })
	r.reaches(n)
	if read := w.read.Load(); read > 3*n*size {
		t.Errorf("%d MiB came over the wire for %d MiB of events", read>>20, n*size>>20)
	}
}

// Without a session the beats have a connection of their own: dead letters that
// wait for a lock cost no lease (P-6).
func TestBeatsWithoutASessionAreNotStarved(t *testing.T) {
	t.Parallel()
	r := newRig(t, quick, func(c *shardpub.NodeConfig) {
		c.DisableSession = true
		c.Lease = lease.Config{TTL: 4 * time.Second, RenewInterval: time.Second}
	})
	r.appendRound(orders, 16)
	sub := r.subscriber(shards(8), retry(shardpub.RetryPolicy{MaxDeliveries: 1}))
	if err := sub.SubscribeInitialize(orders); err != nil {
		t.Fatal(err)
	}
	tx, err := r.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `lock table kiroku.dead_letters in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	serve(r.subscribe(sub, orders), func(*message.Message) error { return errors.New("poison") })
	r.until("all are held", func() bool { return len(sub.Status()[0].Lease.Held) == 8 })
	time.Sleep(10 * time.Second)
	st := sub.Status()[0].Lease
	if n := len(r.said.observed(shardpub.BucketRevoked)); n > 0 {
		t.Errorf("%d buckets were lost; last beat %s ago, %v", n, time.Since(st.LastBeat), st.LastError)
	}
	_ = tx.Rollback(t.Context())
	r.until("letters are written", func() bool { return len(r.letters()) > 0 })
}

// freezer turns the wire into a black hole when a statement is begun.
type freezer struct {
	w     *wire
	on    string
	armed atomic.Bool
}

func (f *freezer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	if strings.HasPrefix(d.SQL, f.on) && f.armed.CompareAndSwap(true, false) {
		f.w.freeze()
	}
	return ctx
}
func (f *freezer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A connection that dies while it begins to listen costs one timeout.
func TestListenIntoABlackHoleIsNoStall(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := &wire{}
	cfg := w.pool(r).Config()
	f := &freezer{w: w, on: "listen"}
	f.armed.Store(true)
	cfg.ConnConfig.Tracer = f
	node, said := r.newNode(newPool(t, cfg), quick, patientLease)
	sub := r.subscriber(on(node))
	r.subscribe(sub, orders)
	for deadline := time.Now().Add(90 * time.Second); r.owned() == 0; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no bucket is owned: %v", said.errors()[max(0, len(said.errors())-1):])
		}
	}
}

// So does one that dies in the caller's AfterConnect.
func TestAfterConnectIntoABlackHoleIsNoStall(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := &wire{}
	cfg := w.pool(r).Config()
	var holes atomic.Int32
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if holes.Add(-1) >= 0 {
			w.freeze()
		}
		_, err := conn.Exec(ctx, "select 1") // LoadType, set role, …
		return err
	}
	node, said := r.newNode(newPool(t, cfg), quick, patientLease, func(c *shardpub.NodeConfig) { c.DisableSession = true })
	r.appendTo("orders-1", 1)
	ch := r.subscribe(r.subscriber(on(node)), orders)
	gets(t, ch, 1)
	r.reaches(1)
	holes.Store(4)
	w.freeze()
	r.appendTo("orders-1", 1)
	select {
	case m := <-ch:
		m.Ack()
	case <-time.After(2 * time.Minute):
		t.Fatalf("the event does not come; holes %d: %v", holes.Load(), said.errors()[max(0, len(said.errors())-2):])
	}
}

// An address of several hosts is tried to its end, though the first host drops
// every packet.
func TestSecondHostIsReachedWhenTheFirstIsLost(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := r.pool.Config()
	cc := cfg.ConnConfig
	cc.Fallbacks = []*pgconn.FallbackConfig{{Host: cc.Host, Port: cc.Port, TLSConfig: cc.TLSConfig}}
	cc.Host = "192.0.2.1"
	dial, lookup := cc.DialFunc, cc.LookupFunc
	cc.LookupFunc = func(ctx context.Context, h string) ([]string, error) {
		if h == "192.0.2.1" {
			return []string{h}, nil
		}
		return lookup(ctx, h)
	}
	cc.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if strings.HasPrefix(addr, "192.0.2.1") {
			<-ctx.Done() // its packets are dropped
			return nil, ctx.Err()
		}
		return dial(ctx, network, addr)
	}
	node, said := r.newNode(newPool(t, cfg), patientLease)
	r.appendTo("orders-1", 1)
	ch := r.subscribe(r.subscriber(on(node)), orders)
	select {
	case m := <-ch:
		m.Ack()
	case <-time.After(90 * time.Second):
		t.Fatalf("no event; %v", said.errors()[max(0, len(said.errors())-2):])
	}
}

// slowConn is far away.
type slowConn struct{ net.Conn }

func (c slowConn) Write(b []byte) (int, error) {
	time.Sleep(20 * time.Millisecond)
	return c.Conn.Write(b)
}

// Buckets that go together go in one statement: many of them, far from the
// database, are released with their checkpoints (P-19).
func TestCloseOfManyBucketsFarAwayRepeatsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := r.pool.Config()
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return slowConn{c}, nil
	}
	node, said := r.newNode(newPool(t, cfg))
	sub := r.subscriber(on(node), shards(1024), func(c *shardpub.SubscriberConfig) { c.CheckpointInterval = time.Hour })
	d := &diary{}
	serve(r.subscribe(sub, orders), handleWith(d))
	r.until("all are held", func() bool { return len(sub.Status()[0].Lease.Held) == 1024 })
	r.appendRound(orders, 500)
	r.until("all are handled", func() bool { return d.len() == 500 })
	_ = sub.Close()
	if n := r.owned(); n > 0 {
		t.Errorf("%d of 1024 buckets were not released", n)
	}
	if n := r.covered(1024); n < 500 {
		t.Errorf("%d of 500 settled events come again", 500-n)
	}
	if errs := said.errors(); len(errs) > 0 {
		t.Errorf("%d errors, the first: %v", len(errs), errs[0])
	}
}
