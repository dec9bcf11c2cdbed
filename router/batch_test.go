package router_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/suisha-go/suisha/middleware"
	"github.com/suisha-go/suisha/router"
	"github.com/suisha-go/suisha/shardpub"
)

// callTogether runs the handler for n messages at once and returns what each call returned,
// or panicked with.
func callTogether(h message.NoPublishHandlerFunc, n int) []any {
	out := make([]any, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			defer func() {
				if v := recover(); v != nil {
					out[i] = v
				}
			}()
			if err := h(message.NewMessage(fmt.Sprint(i), nil)); err != nil {
				out[i] = err
			}
		})
		synctest.Wait() // in order
	}
	all.Wait()
	return out
}

func TestBatchIsFullOrHasWaitedLongEnough(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var sizes []int
		began := time.Now()
		var last time.Duration
		h := router.Batch(4, 5*time.Millisecond, func(_ context.Context, msgs []*message.Message) error {
			sizes, last = append(sizes, len(msgs)), time.Since(began)
			return nil
		})
		if got := callTogether(h, 10); slices.ContainsFunc(got, func(v any) bool { return v != nil }) {
			t.Errorf("results %v", got)
		}
		if !slices.Equal(sizes, []int{4, 4, 2}) || last != 5*time.Millisecond {
			t.Errorf("batches of %v, the last after %s", sizes, last)
		}
	})
}

func TestBatchResultsReachTheirOwnMessages(t *testing.T) {
	t.Parallel()
	odd := errors.New("odd")
	for name, test := range map[string]struct {
		returns error
		want    []any
	}{
		"none":     {nil, []any{nil, nil, nil}},
		"each":     {router.BatchErrors{nil, odd, nil}, []any{nil, odd, nil}},
		"wrapped":  {fmt.Errorf("x: %w", router.BatchErrors{odd, nil, nil}), []any{odd, nil, nil}},
		"all":      {odd, []any{odd, odd, odd}},
		"too few":  {router.BatchErrors{nil, odd}, nil},
		"too many": {router.BatchErrors{nil, nil, nil, odd}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				got := callTogether(router.Batch(3, time.Second, func(context.Context, []*message.Message) error { return test.returns }), 3)
				if test.want != nil && !slices.Equal(got, test.want) {
					t.Errorf("%v, want %v", got, test.want)
				}
				for _, v := range got {
					if err, _ := v.(error); test.want == nil && !errors.Is(err, odd) {
						t.Errorf("%v, want all to have failed", got)
					}
				}
			})
		})
	}
}

func TestPanicOfABatchIsThatOfEveryMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := router.Batch(3, time.Second, func(context.Context, []*message.Message) error { panic("all") })
		if got := callTogether(h, 3); !slices.Equal(got, []any{"all", "all", "all"}) {
			t.Errorf("%v", got)
		}
	})
}

func TestBatchDoesNotWaitForAMessageThatIsTakenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		msg := message.NewMessage(watermill.NewUUID(), nil)
		msg.SetContext(ctx)
		began := time.Now()
		h := router.Batch(3, time.Hour, func(ctx context.Context, _ []*message.Message) error { return context.Cause(ctx) })
		time.AfterFunc(time.Second, cancel)
		if err := h(msg); !errors.Is(err, context.Canceled) || time.Since(began) != time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

// A batch is of one bucket and of as many streams as it has messages; each message is
// settled by itself, and the streams keep their order.
func TestBatchHandlerSettlesEachMessageByItself(t *testing.T) {
	t.Parallel()
	const streams, events, size = 24, 5, 6
	pool := database(t)
	addRounds(t, pool, events, streams)
	cfg := quick(2)
	cfg.Retry = shardpub.RetryPolicy{Delay: 10 * time.Millisecond}
	w := newWorker(t, pool, cfg)
	var mu sync.Mutex
	var done diary
	largest := 0
	w.AddBatchHandler("billing", "orders", size, func(_ context.Context, msgs []*message.Message) error {
		mu.Lock()
		defer mu.Unlock()
		largest = max(largest, len(msgs))
		results, bucket, seen := make(router.BatchErrors, len(msgs)), -1, map[string]bool{}
		for i, msg := range msgs {
			d, _ := shardpub.DeliveryFromContext(msg.Context())
			if bucket >= 0 && d.Bucket != bucket || seen[d.Stream] {
				t.Errorf("bucket %d and stream %s in a batch of bucket %d", d.Bucket, d.Stream, bucket)
			}
			bucket, seen[d.Stream] = d.Bucket, true
			switch {
			case d.Stream == stream("orders", 1) && d.Version == 2:
				results[i] = middleware.Permanent(errors.New("no"))
			case d.Stream == stream("orders", 2) && d.Version == 2 && d.Attempt == 0:
				results[i] = errors.New("not yet")
			default:
				done.note(msg)
			}
		}
		return results
	})
	start(t, w)
	eventually(t, "all events", func() bool { return done.len() >= streams*events-1 })
	stop(t, w)
	for n := range streams {
		want := []int64{1, 2, 3, 4, 5}
		if n == 1 {
			want = []int64{1, 3, 4, 5}
		}
		if got := done.versions()[stream("orders", n)]; !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", stream("orders", n), got, want)
		}
	}
	if letters := deadLetters(t, pool, "billing"); len(letters) != 1 {
		t.Errorf("letters %+v", letters)
	}
	if largest < 2 || largest > size {
		t.Errorf("the largest batch had %d", largest)
	}
}

func TestBatchHandlerSaysWhatIsWrongWithIt(t *testing.T) {
	t.Parallel()
	w := newWorker(t, unreachable(t), quick(2))
	w.AddBatchHandler("billing", "orders", 0, nil)
	err := w.Start(t.Context())
	var bad *router.HandlerError
	if !errors.As(err, &bad) || bad.Handler != "billing" {
		t.Fatalf("%v", err)
	}
	for _, text := range []string{"size", "pass a handler"} {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q is not in %v", text, err)
		}
	}
}
