package shardpub_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/suisha-go/suisha/shardpub"
)

// sent notes when a statement is sent by a pool and all that are made like it.
type sent struct {
	sql string

	mu    sync.Mutex
	calls []call
}

type call struct {
	at   time.Time
	args []any
}

func (s *sent) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	if d.SQL == s.sql {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.calls = append(s.calls, call{time.Now(), d.Args})
	}
	return ctx
}
func (s *sent) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (s *sent) all() []call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// sending makes a Node of which one of its statements is noted.
func (r *rig) sending(name string) (*shardpub.Node, *sent) {
	r.t.Helper()
	s := &sent{sql: statement(r.t, name)}
	cfg := r.pool.Config()
	cfg.ConnConfig.Tracer = s
	node, _ := r.newNode(newPool(r.t, cfg))
	return node, s
}

// checkpoints are sent by checkpoint.sql.
const checkpoints = "checkpoint.sql"

// saved are the subscriptions of the rows of a checkpoint statement.
func (c call) saved() []string { return c.args[0].([]string) }

// Checkpoints of all buckets of all subscriptions go out together, at most 20 times
// a second, however short CheckpointInterval is; and at once after a quiet time.
func TestCheckpointsGoOutTogetherTwentyTimesASecond(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	node, sent := r.sending(checkpoints)
	for _, name := range []string{group, "shipping"} {
		sub := r.subscriber(on(node), shards(16), concurrency(4), func(c *shardpub.SubscriberConfig) {
			c.ConsumerGroup, c.CheckpointInterval = name, time.Millisecond
		})
		serve(r.subscribe(sub, orders), handleWith(&diary{}))
	}
	r.until("all is owned", func() bool { return r.owned() == 32 })
	began := time.Now()
	for time.Since(began) < 3*time.Second {
		r.appendRound(orders, 64)
	}
	r.until("all is settled", func() bool {
		return ask[bool](r, `select min(last_seen) = (select stream_version from kiroku.streams where stream_id = 0) from kiroku.subscriptions`)
	})
	took, all := time.Since(began), sent.all()
	if most := int(took/(50*time.Millisecond)) + 1; len(all) > most {
		t.Errorf("%d statements in %s, want %d at the most", len(all), took, most)
	}
	together := 0
	for i, s := range all {
		if i > 0 && s.at.Sub(all[i-1].at) < 45*time.Millisecond {
			t.Errorf("the next statement came after %s", s.at.Sub(all[i-1].at))
		}
		if slices.Contains(s.saved(), group) && slices.Contains(s.saved(), "shipping") && len(s.saved()) > 16 {
			together++
		}
	}
	t.Logf("%d statements in %s, %d of them for more than 16 buckets of both", len(all), took, together)
	if together == 0 {
		t.Error("no statement was for both subscriptions")
	}
}

// A bucket without events follows the log now and then, in one statement with all
// others, and when it goes.
func TestCheckpointsOfIdleBucketsFollowRarely(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	node, sent := r.sending(checkpoints)
	sub := r.subscriber(on(node), shards(64))
	serve(r.subscribe(sub, orders), handleWith(&diary{}))
	r.until("all is owned", func() bool { return r.owned() == 64 })
	began, before := time.Now(), len(sent.all())
	for time.Since(began) < 12*time.Second {
		r.appendTo("parcels-1", 10)
		time.Sleep(20 * time.Millisecond)
	}
	if n := len(sent.all()) - before; n < 1 || n > 2 {
		t.Errorf("%d statements in 12 s, want one or two", n)
	}
	for _, s := range sent.all()[before:] {
		if len(s.saved()) != 64 {
			t.Errorf("a statement for %d buckets of 64", len(s.saved()))
		}
	}
	head := r.appendTo("parcels-1", 1)
	r.until("it is read", func() bool { return sub.Status()[0].Buckets[0].Read == head })
	if err := sub.Close(); err != nil {
		t.Fatal(err)
	}
	if low := ask[int64](r, `select min(last_seen) from kiroku.subscriptions`); low != int64(head) {
		t.Errorf("released at %d, the log ends at %d", low, head)
	}
}
