package shardpub_test

import (
	"context"
	"encoding/binary"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/shardpub"
)

// meter counts the statements that go over connections, whoever sends them and
// whatever they say: also a pool's pings.
type meter struct {
	statements atomic.Int64

	mu   sync.Mutex // guards what follows
	open map[net.Conn]struct{}
}

// over makes a pool whose connections are counted, and all that are made like it.
func (m *meter) over(r *rig) *pgxpool.Pool {
	m.open = map[net.Conn]struct{}{}
	cfg := r.pool.Config()
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		c := &meteredConn{Conn: conn, meter: m}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.open[c] = struct{}{}
		return c, nil
	}
	return newPool(r.t, cfg)
}

func (m *meter) connections() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.open)
}

// meteredConn reads along what the client sends: after the startup message each
// message is a letter and a length.
type meteredConn struct {
	net.Conn
	meter   *meter
	pending []byte
	started bool
}

func (c *meteredConn) Write(b []byte) (int, error) {
	c.pending = append(c.pending, b...)
	for c.next() {
	}
	return c.Conn.Write(b)
}

// next takes one message off what was sent; false when it is not complete.
func (c *meteredConn) next() bool {
	head := 1
	if !c.started {
		head = 0
	}
	if len(c.pending) < head+4 {
		return false
	}
	size := head + int(binary.BigEndian.Uint32(c.pending[head:]))
	if len(c.pending) < size {
		return false
	}
	if c.started && (c.pending[0] == 'Q' || c.pending[0] == 'E') {
		c.meter.statements.Add(1)
	}
	c.started = true
	c.pending = c.pending[size:]
	return true
}

func (c *meteredConn) Close() error {
	c.meter.mu.Lock()
	delete(c.meter.open, c)
	c.meter.mu.Unlock()
	return c.Conn.Close()
}

// 1,000 single appends cost as many statements with 64 buckets as with one.
func TestStatementsDoNotGrowWithTheNumberOfBuckets(t *testing.T) {
	t.Parallel()
	cost := func(n int) int64 {
		r := newRig(t)
		m := &meter{}
		node, _ := r.newNode(m.over(r))
		sub := r.subscriber(on(node), shards(n))
		var handled atomic.Int64
		done := serve(r.subscribe(sub, orders), func(*message.Message) error { handled.Add(1); return nil })
		r.appendRound(orders, 64)
		r.until("it runs", func() bool { return r.covered(n) == 64 })
		before := m.statements.Load()
		streams := []string{"orders-1", "orders-2", "orders-3", "orders-4", "orders-5", "orders-6", "orders-7"}
		for i := range int64(1000) {
			event := kiroku.Event{Type: "Counted", Data: []byte(`{}`)}
			if _, err := kiroku.Append(t.Context(), r.pool, kiroku.StreamAppend{Stream: streams[i%7], Events: []kiroku.Event{event}}); err != nil {
				t.Fatal(err)
			}
			for handled.Load() < 64+i+1 {
				time.Sleep(100 * time.Microsecond)
			}
		}
		spent := m.statements.Load() - before
		if err := sub.Close(); err != nil {
			t.Error(err)
		}
		<-done
		return spent
	}
	one, many := cost(1), cost(64)
	t.Logf("%d statements with one bucket, %d with 64", one, many)
	if float64(many) > 1.1*float64(one) {
		t.Errorf("1,000 appends cost %d statements with 64 buckets and %d with one", many, one)
	}
}

// What a worker costs that has nothing to do: at most a statement every two seconds
// and three connections, alone, beside another, or with eight subscriptions.
func TestIdleWorkersCostNextToNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                   string
		workers, subscriptions int
	}{{"alone", 1, 1}, {"beside another", 2, 1}, {"with eight subscriptions", 1, 8}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			meters := make([]*meter, c.workers)
			var handled atomic.Int64
			for i := range meters {
				meters[i] = &meter{}
				node, _ := r.newNode(meters[i].over(r), func(c *shardpub.NodeConfig) { c.PollInterval = 0 })
				for g := range c.subscriptions {
					sub := r.subscriber(on(node), shards(64), func(c *shardpub.SubscriberConfig) { c.ConsumerGroup += strconv.Itoa(g) })
					serve(r.subscribe(sub, orders), func(*message.Message) error { handled.Add(1); return nil })
				}
			}
			r.appendRound(orders, 64)
			r.until("all is handled", func() bool { return handled.Load() >= int64(64*c.subscriptions) })
			time.Sleep(15 * time.Second)
			var before, spent []int64
			for _, m := range meters {
				before = append(before, m.statements.Load())
			}
			most := 0
			for range 60 {
				time.Sleep(time.Second)
				for _, m := range meters {
					most = max(most, m.connections())
				}
			}
			for i, m := range meters {
				spent = append(spent, m.statements.Load()-before[i])
			}
			t.Logf("statements in a minute: %v; connections: %d", spent, most)
			if slices.Max(spent) > 30 || slices.Min(spent) == 0 {
				t.Errorf("statements in a minute: %v, want 30 at the most", spent)
			}
			if most > 3 {
				t.Errorf("%d connections, want 3 at the most", most)
			}
		})
	}
}
