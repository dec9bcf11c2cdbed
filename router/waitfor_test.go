package router_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/router"
	"github.com/suisha-go/suisha/shardpub"
)

// brief is a context that ends long before anything that is waited for.
func brief(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func TestWaitForReturnsWhenAllUpToThePositionIsSettled(t *testing.T) {
	t.Parallel()
	pool := database(t)
	w := newWorker(t, pool, quick(4))
	gate := make(chan struct{})
	var seen diary
	w.AddConsumerHandler("billing", "orders", func(msg *message.Message) error {
		if d := seen.note(msg); d.Stream == "orders-9" {
			<-gate
		}
		return nil
	})
	before := add(t, pool, "orders-1", 3)
	held := add(t, pool, "orders-9", 1)
	after := add(t, pool, "others-1", 1)
	start(t, w)
	waitFor(t, w, "billing", before)
	for _, p := range []kiroku.Position{held, after} {
		if err := w.WaitFor(brief(t), "billing", p); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("position %d: %v while its handler runs", p, err)
		}
	}
	close(gate)
	waitFor(t, w, "billing", after)
	if seen.len() != 4 {
		t.Errorf("%d events were handled", seen.len())
	}
	if err := w.WaitFor(brief(t), "billing", after+1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a position that is not in the log yet: %v", err)
	}
	waitFor(t, w, "billing", add(t, pool, "others-1", 1))
}

func TestWaitForSeesWhatOtherWorkersSettle(t *testing.T) {
	t.Parallel()
	pool := database(t)
	idle := newWorker(t, pool, quick(4))
	idle.AddConsumerHandler("billing", "orders", accept)
	defer stop(t, idle)
	busy := newWorker(t, pool, quick(4))
	busy.AddConsumerHandler("billing", "orders", accept)
	start(t, busy)
	var last kiroku.Position
	for i := range 20 {
		last = add(t, pool, stream("orders", i), 1)
	}
	waitFor(t, idle, "billing", last)
}

func TestWaitForKnowsItsOwnSubscriptionsOnly(t *testing.T) {
	t.Parallel()
	w := newWorker(t, unreachable(t), quick(4))
	defer stop(t, w)
	w.AddConsumerHandler("shipping", "orders", accept)
	w.AddConsumerHandler("billing", "orders", accept)
	err := w.WaitFor(t.Context(), "biling", 1)
	var unknown *router.UnknownSubscriptionError
	if !errors.As(err, &unknown) || unknown.Subscription != "biling" || !reflect.DeepEqual(unknown.Known, []string{"billing", "shipping"}) {
		t.Errorf("WaitFor: %v", err)
	}
	if err := w.WaitFor(t.Context(), "billing", 1); err == nil {
		t.Error("no error without a server")
	}
}

func TestWaitForOfEverything(t *testing.T) {
	t.Parallel()
	pool := database(t)
	w := newWorker(t, pool, quick(3))
	w.AddConsumerHandler("audit", shardpub.AllStreams, accept)
	var last kiroku.Position
	for i := range 9 {
		last = add(t, pool, stream(fmt.Sprintf("category%d", i), i), 1)
	}
	start(t, w)
	waitFor(t, w, "audit", last)
}

// Only the checkpoint of a stream's own bucket, by kiroku's own expression, says
// whether its events are settled.
func TestPendingKnowsTheBucketOfAStream(t *testing.T) {
	t.Parallel()
	pool := database(t)
	w := newWorker(t, pool, quick(8))
	buckets := make(chan int, 1)
	w.AddConsumerHandler("billing", "orders", func(msg *message.Message) error {
		d, _ := shardpub.DeliveryFromContext(msg.Context())
		buckets <- d.Bucket
		return nil
	})
	last := add(t, pool, "orders-1", 1)
	start(t, w)
	bucket := receive(t, "the event", buckets)
	waitFor(t, w, "billing", last)
	stop(t, w)

	move := "update kiroku.subscriptions set last_seen = $1 where subscription_name = 'billing' and (consumer_group_member = $2) = $3"
	exec(t, pool, move, 0, bucket, false)
	exec(t, pool, move, last, bucket, true)
	waitFor(t, w, "billing", last)
	exec(t, pool, move, last, bucket, false)
	exec(t, pool, move, 0, bucket, true)
	if err := w.WaitFor(brief(t), "billing", last); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with bucket %d alone behind: %v", bucket, err)
	}
}

func TestStatementsPrepare(t *testing.T) {
	t.Parallel()
	pool := database(t)
	args := map[string]pgx.NamedArgs{
		"pending.sql": {"subscription": "billing", "category": "orders", "shards": 4, "position": 7},
		"unowned.sql": {"subscription": "billing", "shards": 4, "grace": 7},
	}
	files, err := filepath.Glob("sql/*.sql")
	if err != nil || len(files) != len(args) {
		t.Fatalf("files %v, error %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		exec(t, pool, string(text), args[filepath.Base(file)])
	}
}
