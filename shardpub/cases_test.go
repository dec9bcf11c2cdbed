package shardpub_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/suisha-go/suisha/lease"
	"github.com/suisha-go/suisha/shardpub"
)

// Case 17: a bucket moves while its old owner has read a hundred events of it
// ahead. Those go nowhere: the next one is the new owner's, and none comes twice.
func TestWhatWasReadAheadGoesNowhereWhenItsBucketMoves(t *testing.T) {
	t.Parallel()
	r := newRig(t, quick)
	const each = 150
	streams := []string{r.streamIn(0, 2), r.streamIn(1, 2)}
	for _, s := range streams {
		r.appendTo(s, each)
	}
	var seen diary
	slowly := func(msg *message.Message) error {
		seen.note(msg)
		time.Sleep(10 * time.Millisecond)
		return nil
	}
	a := r.subscriber(shards(2))
	serve(r.subscribe(a, orders), slowly)
	r.until("a hundred wait in each bucket", func() bool {
		full := 0
		for _, b := range a.Status()[0].Buckets {
			if b.Queued >= 100 {
				full++
			}
		}
		return full == 2
	})
	node, _ := r.newNode(r.pool, quick)
	b := r.subscriber(on(node), shards(2))
	serve(r.subscribe(b, orders), slowly)
	r.until("all are handled", func() bool { return seen.len() >= 2*each })
	seen.onceInOrder(t, 2*each)
	handovers := 0
	last := map[string]shardpub.Delivery{}
	for _, d := range seen.all() {
		if before, ok := last[d.Stream]; ok && before.Worker != d.Worker {
			handovers++
			if left := each - before.Version; left < 20 {
				t.Errorf("only %d events were left when the bucket moved", left)
			}
		}
		last[d.Stream] = d
	}
	if handovers != 1 {
		t.Errorf("%d buckets changed hands, want 1", handovers)
	}
}

// Case 34: an Ack of an earlier event after the bucket was taken, and after the new
// owner has settled later ones, moves no checkpoint, and its handler was told why.
// The loser reports no storm of errors.
func TestAckAfterTheBucketWasTakenMovesNoCheckpoint(t *testing.T) {
	t.Parallel()
	r := newRig(t, quick)
	w := &wire{}
	node, said := r.newNode(w.pool(r), quick)
	r.appendTo("orders-1", 20)
	ch := r.subscribe(r.subscriber(on(node)), orders)
	for range 9 {
		receive(t, ch).Ack()
	}
	r.reaches(9)
	tenth := receive(t, ch)
	w.cut()
	var seen diary
	serve(r.subscribe(r.subscriber(), orders), handleWith(&seen))
	r.reaches(20)
	r.until("its handler is told", func() bool { return errors.Is(context.Cause(tenth.Context()), lease.ErrLost) })
	row := func() string {
		return ask[string](r, `select concat_ws(' ', last_seen, xmin) from kiroku.subscriptions where subscription_name = $1`, group)
	}
	before, errs := row(), len(said.errors())
	w.mend()
	tenth.Ack()
	r.until("it is back", func() bool {
		return ask[int](r, `select count(*)::int from suisha.workers where expires_at > clock_timestamp()`) == 2
	})
	time.Sleep(time.Second)
	if after := row(); after != before {
		t.Errorf("the checkpoint went from %s to %s", before, after)
	}
	if n := len(said.errors()) - errs; n > 10 {
		t.Errorf("%d errors after the loss, the last: %v", n, said.errors()[errs+n-1])
	}
	if first := seen.all()[0].Version; first != 10 || len(seen.all()) != 11 {
		t.Errorf("the new owner saw %d events from %d on", len(seen.all()), first)
	}
}

// Case 37: a handler hangs past every deadline there is. What stands behind its
// event comes when that is settled, and nothing is lost or counted as failed.
func TestWhatStandsBehindAHungEventComesWhenThatIsSettled(t *testing.T) {
	t.Parallel()
	r := newRig(t, quick)
	r.appendTo("orders-1", 10)
	ch := r.subscribe(r.subscriber(retry(shardpub.RetryPolicy{MaxDeliveries: 1})), orders)
	if got := versions(t, ch, 3); got[2] != 3 {
		t.Fatalf("versions %v", got)
	}
	hung := receive(t, ch)
	select {
	case m := <-ch:
		t.Fatalf("version %d came beside the one that hangs", deliveryOf(t, m).Version)
	case <-time.After(2 * 2 * time.Second): // two TTLs
	}
	if err := hung.Context().Err(); err != nil {
		t.Errorf("its context has ended: %v", err)
	}
	hung.Ack()
	for i, v := range versions(t, ch, 6) {
		if v != int64(5+i) {
			t.Errorf("then version %d, want %d", v, 5+i)
		}
	}
	r.reaches(10)
	if n := len(r.letters()); n != 0 {
		t.Errorf("%d dead letters", n)
	}
}

// Case 48: what is appended while the listener's session is gone, and with nothing
// after it, is read as soon as it listens again, long before the next poll (P-32).
func TestAppendWhileNobodyListensIsReadAtTheReconnect(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := &wire{}
	node, _ := r.newNode(w.pool(r), func(c *shardpub.NodeConfig) { c.PollInterval = 10 * time.Minute })
	ch := r.subscribe(r.subscriber(on(node)), orders)
	r.appendTo("orders-1", 1)
	receive(t, ch).Ack()
	r.until("its session is known", func() bool { return len(r.locks()) == 1 })
	for version := int64(2); version <= 4; version++ {
		w.cut()
		r.appendTo("orders-1", 1)
		w.mend()
		msg := receive(t, ch) // in a minute at the most
		if d := deliveryOf(t, msg); d.Version != version {
			t.Errorf("version %d, want %d", d.Version, version)
		}
		msg.Ack()
	}
}

// muffled is a connection that swallows notifications: it passes on all messages of
// the server but those.
type muffled struct {
	net.Conn
	ready, raw []byte
	swallowed  *atomic.Int32
}

func (c *muffled) Read(b []byte) (int, error) {
	for len(c.ready) == 0 {
		part := make([]byte, 8192)
		n, err := c.Conn.Read(part)
		c.raw = append(c.raw, part[:n]...)
		for len(c.raw) >= 5 {
			size := 1 + int(binary.BigEndian.Uint32(c.raw[1:]))
			if len(c.raw) < size {
				break
			}
			if c.raw[0] == 'A' {
				c.swallowed.Add(1)
			} else {
				c.ready = append(c.ready, c.raw[:size]...)
			}
			c.raw = c.raw[size:]
		}
		if err != nil && len(c.ready) == 0 {
			return 0, err
		}
	}
	n := copy(b, c.ready)
	c.ready = c.ready[n:]
	return n, nil
}

// Case 49: where notifications silently never come, that is said once, no lock is
// taken, and events and workers are found by polling (P-17).
func TestSwallowedNotificationsAreSaidOnceAndPollingCarriesOn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := r.pool.Config()
	cfg.ConnConfig.TLSConfig, cfg.ConnConfig.Fallbacks = nil, nil // it reads along
	var swallowed atomic.Int32
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return &muffled{Conn: conn, swallowed: &swallowed}, err
	}
	node, said := r.newNode(newPool(t, cfg), quick)
	sub := r.subscriber(on(node), shards(4))
	var handled atomic.Int32
	serve(r.subscribe(sub, orders), func(*message.Message) error { handled.Add(1); return nil })
	pooled := func() (n int) {
		for _, err := range said.errors() {
			var session *shardpub.SessionError
			if errors.As(err, &session) && strings.Contains(err.Error(), "no notification reaches the session") {
				n++
			}
		}
		return n
	}
	r.until("it is said", func() bool { return pooled() > 0 })
	began := time.Now()
	for i := range int32(5) {
		r.appendRound(orders, 4)
		r.until("they are handled", func() bool { return handled.Load() == 4*(i+1) })
	}
	t.Logf("five rounds by polling took %s; %d notifications were swallowed", time.Since(began), swallowed.Load())
	if n := pooled(); n != 1 || swallowed.Load() == 0 {
		t.Errorf("said %d times; %d notifications were swallowed", n, swallowed.Load())
	}
	if locks := r.locks(); len(locks) != 0 {
		t.Errorf("locks %v", locks)
	}
	r.subscribe(r.elsewhere(shards(4)), orders) // that one hears
	r.until("they share, by polling", func() bool { return len(sub.Status()[0].Lease.Held) == 2 && r.owned() == 4 })
}
