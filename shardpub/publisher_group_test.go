package shardpub_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/shardpub"
)

// publishTogether publishes while the log is locked, so that all calls but the
// first wait at the same time. It returns their errors.
func publishTogether(t *testing.T, pool *pgxpool.Pool, pub *shardpub.Publisher, msgs ...*message.Message) []error {
	t.Helper()
	release := holdTheLog(t, pool)
	errs := make([]error, len(msgs))
	var wg sync.WaitGroup
	for i, msg := range msgs {
		wg.Go(func() { errs[i] = pub.Publish("orders", msg) })
		if i == 0 {
			eventually(t, pool, "the first append waits", aWriterWaits)
		}
	}
	time.Sleep(30 * time.Millisecond)
	release()
	wg.Wait()
	return errs
}

func commits(t *testing.T, pool *pgxpool.Pool) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), `select count(distinct xmin::text) from kiroku.events`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestPublishesAtOneTimeShareACommitUnlessTheyMustNot(t *testing.T) {
	t.Parallel()
	const calls = 12
	for _, disabled := range []bool{false, true} {
		pool := storePool(t)
		pub := newPublisher(t, pool, shardpub.PublisherConfig{DisableGroupCommit: disabled})
		var msgs []*message.Message
		for i := range calls {
			msgs = append(msgs, keyed(fmt.Sprint("m", i), "x", fmt.Sprint(i%5)))
		}
		if err := errors.Join(publishTogether(t, pool, pub, msgs...)...); err != nil {
			t.Error(err)
		}
		if got := len(messagesOf(t, pool, "orders")); got != calls {
			t.Errorf("%d messages, want %d", got, calls)
		}
		if n := commits(t, pool); disabled != (n == calls) || !disabled && n > calls/2 {
			t.Errorf("disabled %v: %d commits for %d calls", disabled, n, calls)
		}
	}
}

func TestAConflictOfOnePublishHarmsNoOther(t *testing.T) {
	t.Parallel()
	pool := storePool(t)
	pub := newPublisher(t, pool, shardpub.PublisherConfig{EventID: shardpub.IdempotentEventID})
	if err := pub.Publish("orders", keyed("m0", "x", "a")); err != nil {
		t.Fatal(err)
	}
	errs := publishTogether(t, pool, pub,
		keyed("m1", "x", "a"), expecting("m2", "a", "7"), keyed("m0", "x", "b"), keyed("m3", "x", "a"), expecting("m4", "c", "no_stream"))
	var duplicate *kiroku.DuplicateEventError
	if errs[0] != nil || !errors.Is(errs[1], kiroku.ErrConflict) || !errors.As(errs[2], &duplicate) || errs[3] != nil || errs[4] != nil {
		t.Errorf("%v", errs)
	}
	if got := len(messagesOf(t, pool, "orders")); got != 4 {
		t.Errorf("%d messages, want 4", got)
	}
}

func TestDeadlineOfOnePublishHarmsNoOther(t *testing.T) {
	t.Parallel()
	pool := storePool(t)
	pub := newPublisher(t, pool, shardpub.PublisherConfig{})
	release := holdTheLog(t, pool)
	var stays sync.WaitGroup
	for i := range 3 {
		stays.Go(func() {
			if err := pub.Publish("orders", keyed("m", "x", fmt.Sprint(i))); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, pool, "an append waits", aWriterWaits)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	start := time.Now()
	err := pub.Publish("orders", message.NewMessageWithContext(ctx, "gone", nil))
	if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took > 5*time.Second {
		t.Errorf("%v after %v, want DeadlineExceeded after 300 ms", err, took)
	}
	release()
	stays.Wait()
	if got := len(messagesOf(t, pool, "orders")); got < 3 {
		t.Errorf("%d messages, want 3 and perhaps the one whose caller was gone", got)
	}
}

func TestLockTimeoutBoundsAllThatShareIt(t *testing.T) {
	t.Parallel()
	pool := storePool(t)
	pub := newPublisher(t, pool, shardpub.PublisherConfig{LockTimeout: 200 * time.Millisecond})
	release := holdTheLog(t, pool)
	start := time.Now()
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			var typed *kiroku.TransientError
			if err := pub.Publish("orders", keyed("m", "x", fmt.Sprint(i))); !errors.As(err, &typed) {
				t.Errorf("%v, want a *TransientError", err)
			}
		})
	}
	wg.Wait()
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
	release()
	if err := pub.Publish("orders", newMessage("m", "x", nil)); err != nil || headOf(t, pool) != 1 {
		t.Errorf("afterwards: %v, head %d", err, headOf(t, pool))
	}
}

func TestCloseWaitsForThoseWhoShare(t *testing.T) {
	t.Parallel()
	pool := storePool(t)
	pub := newPublisher(t, pool, shardpub.PublisherConfig{})
	release := holdTheLog(t, pool)
	var wg sync.WaitGroup
	for i := range 5 {
		wg.Go(func() {
			if err := pub.Publish("orders", keyed("m", "x", fmt.Sprint(i))); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, pool, "an append waits", aWriterWaits)
	time.Sleep(30 * time.Millisecond) // until all are inside
	closed := make(chan error, 1)
	go func() { closed <- pub.Close() }()
	select {
	case <-closed:
		t.Error("Close did not wait")
	case <-time.After(50 * time.Millisecond):
	}
	release()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	wg.Wait()
	if head := headOf(t, pool); head != 5 {
		t.Errorf("head %d, want 5", head)
	}
}
