package router_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/suisha-go/suisha/middleware"
	"github.com/suisha-go/suisha/router"
	"github.com/suisha-go/suisha/shardpub"
)

// What one of a stream's messages needs is found out by itself, and nothing is done
// twice that was done.
func TestStreamBatchSettlesWhatIsBeforeTheFirstThatFails(t *testing.T) {
	t.Parallel()
	each := func(at int) router.BatchErrors {
		out := make(router.BatchErrors, 9)
		if at >= 0 {
			out[at] = errors.New("no")
		}
		return out
	}
	for name, tt := range map[string]struct {
		version int64 // whose handling fails
		fail    func(at, n int) error
		calls   string
		letters int
	}{
		"all done":                 {0, nil, "[1-9]", 0},
		"each has a result":        {0, func(int, int) error { return each(-1) }, "[1-9]", 0},
		"one in the middle":        {4, func(at, n int) error { return each(at)[:n] }, "[1-9] [4-9] [4] [4] [5-9]", 1},
		"the first":                {1, func(at, n int) error { return each(at)[:n] }, "[1-9] [1] [1] [2-9]", 1},
		"one error for all":        {2, func(int, int) error { return errors.New("no") }, "[1-9] [1] [2-9] [2] [2] [2] [3-9]", 1},
		"results of another":       {2, func(int, int) error { return each(0)[:3:3] }, "[1-9] [1] [2-9] [2] [2] [2] [3-9]", 1},
		"a panic":                  {2, func(int, int) error { panic("no") }, "[1-9] [1] [2-9] [2] [2] [2] [3-9]", 1},
		"permanent, whoever it is": {5, func(int, int) error { return middleware.Permanent(errors.New("no")) }, "[1-9] [1] [2-9] [2] [3-9] [3] [4-9] [4] [5-9] [5] [6-9]", 1},
		"permanent in the midst": {4, func(at, n int) error {
			out := make(router.BatchErrors, n)
			out[at] = middleware.Permanent(errors.New("no"))
			return out
		}, "[1-9] [4-9] [5-9]", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := database(t)
			add(t, pool, stream("orders", 0), 1) // is handled until the others wait
			add(t, pool, stream("orders", 1), 9)
			w := newWorker(t, pool, quick(1))
			var mu sync.Mutex
			var calls []string
			w.AddStreamBatchHandler("billing", "orders", 20, func(_ context.Context, msgs []*message.Message) error {
				mu.Lock()
				defer mu.Unlock()
				if d, _ := shardpub.DeliveryFromContext(msgs[0].Context()); d.Stream == stream("orders", 0) {
					time.Sleep(100 * time.Millisecond)
					return nil
				}
				first, failing := versionOf(t, msgs[0]), -1
				for i, msg := range msgs {
					if got := versionOf(t, msg); got != first+int64(i) {
						t.Errorf("message %d of a batch from %d on is %d", i, first, got)
					}
					if versionOf(t, msg) == tt.version {
						failing = i
					}
				}
				call := fmt.Sprintf("[%d-%d]", first, first+int64(len(msgs))-1)
				if len(msgs) == 1 {
					call = fmt.Sprintf("[%d]", first)
				}
				calls = append(calls, call)
				if tt.fail != nil && (failing >= 0 || tt.version == 0) {
					return tt.fail(failing, len(msgs))
				}
				return nil
			})
			start(t, w)
			eventually(t, "the checkpoint", func() bool {
				var at int64
				if err := pool.QueryRow(t.Context(), `select last_seen from kiroku.subscriptions where subscription_name = 'billing'`).Scan(&at); err != nil {
					t.Fatal(err)
				}
				return at == 10
			})
			stop(t, w)
			if got := strings.Join(calls, " "); got != tt.calls {
				t.Errorf("calls %s, want %s", got, tt.calls)
			}
			letters := deadLetters(t, pool, "billing")
			if len(letters) != tt.letters || tt.letters == 1 && int64(letters[0].Position) != tt.version+1 {
				t.Errorf("letters %+v", letters)
			}
		})
	}
}

func versionOf(t *testing.T, msg *message.Message) int64 {
	t.Helper()
	d, ok := shardpub.DeliveryFromContext(msg.Context())
	if !ok {
		t.Error("a message of a batch without a delivery")
	}
	if msg.Metadata.Get(shardpub.MetadataVersion) != fmt.Sprint(d.Version) {
		t.Errorf("metadata %v of version %d", msg.Metadata, d.Version)
	}
	return d.Version
}

// Streams in one bucket take turns, each with what waits of it.
func TestStreamBatchIsOfOneStream(t *testing.T) {
	t.Parallel()
	const streams, rounds, size = 5, 8, 3
	pool := database(t)
	addRounds(t, pool, rounds, streams)
	w := newWorker(t, pool, quick(2))
	var mu sync.Mutex
	var done diary
	largest := 0
	w.AddStreamBatchHandler("billing", "orders", size, func(_ context.Context, msgs []*message.Message) error {
		mu.Lock()
		defer mu.Unlock()
		largest = max(largest, len(msgs))
		first, _ := shardpub.DeliveryFromContext(msgs[0].Context())
		for _, msg := range msgs {
			if d := done.note(msg); d.Stream != first.Stream {
				t.Errorf("%s in a batch of %s", d.Stream, first.Stream)
			}
		}
		return nil
	})
	start(t, w)
	eventually(t, "all events", func() bool { return done.len() >= streams*rounds })
	stop(t, w)
	for n := range streams {
		if got := done.versions()[stream("orders", n)]; !slices.Equal(got, []int64{1, 2, 3, 4, 5, 6, 7, 8}) {
			t.Errorf("%s: %v", stream("orders", n), got)
		}
	}
	if largest != size {
		t.Errorf("the largest batch had %d", largest)
	}
}

// Where there is nothing to follow, messages come one at a time.
func TestStreamBatchOfAnotherSubscriberIsOfOne(t *testing.T) {
	t.Parallel()
	no := errors.New("no")
	for _, returned := range []error{nil, no, router.BatchErrors{no}, router.BatchErrors{nil}} {
		h := router.StreamBatch(9, func(_ context.Context, msgs []*message.Message) error {
			if len(msgs) != 1 {
				t.Errorf("%d messages", len(msgs))
			}
			return returned
		})
		if err := h(message.NewMessage("1", nil)); (err != nil) != errors.Is(returned, no) {
			t.Errorf("%v became %v", returned, err)
		}
	}
}
