package shardpub_test

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/suisha-go/suisha/shardpub"
)

// A stream that two transactions create at the same time is one stream.
func TestSQLPublisherWaitsForAStreamThatIsBeingCreated(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, version string
		commit, ok    bool
	}{
		{"any after commit", "any", true, true},
		{"any after rollback", "any", false, true},
		{"no_stream after commit", "no_stream", true, false},
		{"no_stream after rollback", "no_stream", false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			pool := storePool(t)
			db := openSQL(t, pool)
			first := beginSQL(t, db)
			if err := sqlPublish(first, shardpub.SQLSchemaConfig{}, "orders", keyed("m1", "x", "new")); err != nil {
				t.Fatal(err)
			}
			second := make(chan error, 1)
			go func() {
				second <- sqlPublish(db, shardpub.SQLSchemaConfig{}, "orders", keyed("m2", "x", "a"), expecting("m2", "new", c.version))
			}()
			eventually(t, pool, "the second waits", aWriterWaits)
			end := first.Rollback
			if c.commit {
				end = first.Commit
			}
			if err := end(); err != nil {
				t.Fatal(err)
			}
			err := <-second
			if c.ok != (err == nil) || !c.ok && !shardpub.IsSQLConflict(err) {
				t.Errorf("the second: %v, want success: %v", err, c.ok)
			}
			want := int64(0)
			if c.commit {
				want++
			}
			if c.ok {
				want += 2
			}
			if head := headOf(t, pool); int64(head) != want {
				t.Errorf("head %d, want %d", head, want)
			}
		})
	}
}

// Both ways in lock in one order.
func TestSQLPublisherAndPublisherDoNotDeadlock(t *testing.T) {
	t.Parallel()
	pool := storePool(t)
	db := openSQL(t, pool)
	db.SetMaxOpenConns(4)
	pub := newPublisher(t, pool, shardpub.PublisherConfig{})
	const streams, calls = 6, 30
	var all []*message.Message
	for s := range streams {
		all = append(all, keyed("m", "x", strconv.Itoa(streams-s)))
	}
	if err := pub.Publish("orders", all...); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for w := range 6 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(w)))
			for range calls {
				var msgs []*message.Message
				for _, s := range random.Perm(streams)[:3] {
					msgs = append(msgs, keyed("m", "x", strconv.Itoa(s+1)))
				}
				publish := pub.Publish
				if w%2 == 0 {
					publish = func(topic string, msgs ...*message.Message) error {
						return sqlPublish(db, shardpub.SQLSchemaConfig{}, topic, msgs...)
					}
				}
				if err := publish("orders", msgs...); err != nil {
					t.Errorf("writer %d: %v", w, err)
				}
			}
		})
	}
	wg.Wait()
	if head := headOf(t, pool); head != streams+6*calls*3 {
		t.Errorf("head %d, want %d", head, streams+6*calls*3)
	}
}

// A lock_timeout of the transaction bounds the publish, which has no context.
func TestSQLPublisherIsBoundedByTheTransaction(t *testing.T) {
	t.Parallel()
	pool := storePool(t)
	holdTheLog(t, pool)
	tx := beginSQL(t, openSQL(t, pool))
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), `set local lock_timeout = '50ms'`); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	err := sqlPublish(tx, shardpub.SQLSchemaConfig{}, "orders", newMessage("m1", "x", nil))
	if took := time.Since(start); err == nil || took > 5*time.Second {
		t.Errorf("%v after %v", err, took)
	}
}
