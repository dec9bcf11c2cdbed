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

// flushes notes the checkpoint statements of a pool and all that are made like it.
type flushes struct {
	sql string

	mu   sync.Mutex
	sent []flushed
}

type flushed struct {
	at            time.Time
	subscriptions []string // of each row
}

func (f *flushes) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	if d.SQL == f.sql {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.sent = append(f.sent, flushed{time.Now(), d.Args[0].([]string)})
	}
	return ctx
}
func (f *flushes) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (f *flushes) all() []flushed {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.sent)
}

// flushing makes a Node whose checkpoint statements are noted.
func (r *rig) flushing() (*shardpub.Node, *flushes) {
	r.t.Helper()
	f := &flushes{sql: statement(r.t, "checkpoint.sql")}
	cfg := r.pool.Config()
	cfg.ConnConfig.Tracer = f
	node, _ := r.newNode(newPool(r.t, cfg))
	return node, f
}

// Checkpoints of all buckets of all subscriptions go out together, at most 20 times
// a second, however short CheckpointInterval is; and at once after a quiet time.
func TestCheckpointsGoOutTogetherTwentyTimesASecond(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	node, sent := r.flushing()
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
		if slices.Contains(s.subscriptions, group) && slices.Contains(s.subscriptions, "shipping") && len(s.subscriptions) > 16 {
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
	node, sent := r.flushing()
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
		if len(s.subscriptions) != 64 {
			t.Errorf("a statement for %d buckets of 64", len(s.subscriptions))
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
