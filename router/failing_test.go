package router_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	wm "github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/middleware"
	"github.com/suisha-go/suisha/router"
	"github.com/suisha-go/suisha/shardpub"
)

// budget is the number of deliveries in these tests.
const budget = 2

// failing is a handler that fails always, the middleware around it, and what
// its event's dead letter must say.
type failing struct {
	handle func(*message.Message) error
	chain  []message.HandlerMiddleware

	calls    int    // of the handler, in all
	attempts int    // in the dead letter
	summary  string // all of it
	// lastError is how "last_error" begins.
	lastError string
	// gap is the least time between two calls.
	gap time.Duration
	// extra are further keys of the reason.
	extra map[string]string
}

func boom(*message.Message) error { return errBoom }

func untilDone(msg *message.Message) error {
	<-msg.Context().Done()
	return msg.Context().Err()
}

const exhausted = "max retry attempts exceeded (2)"

func list(all ...message.HandlerMiddleware) []message.HandlerMiddleware { return all }

func failingHandlers(tb testing.TB) map[string]failing {
	tb.Helper()
	queue, err := wm.PoisonQueue(shardpub.NewDeadLetterPublisher(), "parked")
	if err != nil {
		tb.Fatal(err)
	}
	retry := wm.Retry{MaxRetries: 3, InitialInterval: time.Millisecond}.Middleware
	delay := &wm.DelayOnError{InitialInterval: 60 * time.Millisecond, MaxInterval: time.Second, Multiplier: 2}
	// Only the innermost mark knows the type of an error that PoisonQueue swallows.
	poisoned := map[string]string{"poison_topic": "parked", wm.PoisonedTopicKey: "orders", "error_type": "*errors.errorString"}
	classify := func(err error) (string, bool) { return "unknown currency", errors.Is(err, errBoom) }
	return map[string]failing{
		"none": {handle: boom, calls: 2, attempts: 2, summary: exhausted, lastError: "boom"},
		// Public case 43: (3+1) calls in each of 2 deliveries, then one dead letter.
		"Retry": {handle: boom, chain: list(retry), calls: 8, attempts: 2, summary: exhausted, lastError: "boom"},
		"PoisonQueue": {
			handle: boom, chain: list(queue), calls: 1, attempts: 1, summary: "poison: boom", lastError: "boom", extra: poisoned,
		},
		// Public case 40: the right order first.
		"Retry in PoisonQueue": {
			handle: boom, chain: list(queue, retry), calls: 4, attempts: 1, summary: "poison: boom", lastError: "boom", extra: poisoned,
		},
		"PoisonQueue in Retry": {
			handle: boom, chain: list(retry, queue), calls: 1, attempts: 1, summary: "poison: boom", lastError: "boom", extra: poisoned,
		},
		"Recoverer": {
			handle: func(*message.Message) error { panic("gone") }, chain: list(wm.Recoverer),
			calls: 2, attempts: 2, summary: exhausted, lastError: `panic occurred: "gone"`,
		},
		"a panic": {
			handle: func(*message.Message) error { panic("gone") },
			calls:  2, attempts: 2, summary: exhausted, lastError: "panic: gone",
			extra: map[string]string{"error_type": "*middleware.PanicError"},
		},
		"CorrelationID": {handle: boom, chain: list(wm.CorrelationID), calls: 2, attempts: 2, summary: exhausted, lastError: "boom"},
		"Timeout": {
			handle: untilDone, chain: list(wm.Timeout(20 * time.Millisecond)),
			calls: 2, attempts: 2, summary: exhausted, lastError: "context deadline exceeded", gap: 20 * time.Millisecond,
		},
		"DelayOnError": {
			handle: boom, chain: list(delay.Middleware),
			calls: 2, attempts: 2, summary: exhausted, lastError: "boom", gap: 60 * time.Millisecond,
		},
		"the handler's own context.Canceled": {
			handle: func(*message.Message) error { return context.Canceled },
			calls:  2, attempts: 2, summary: exhausted, lastError: "context canceled",
		},
		"middleware.Retry": {
			handle: boom, chain: list(middleware.Retry(shardpub.RetryPolicy{MaxDeliveries: 4, Delay: shardpub.NoDelay})),
			calls: 4, attempts: 4, summary: "max retry attempts exceeded (4)", lastError: "boom",
		},
		"middleware.DeadLetter": {
			handle: boom, chain: list(middleware.DeadLetter(classify)),
			calls: 1, attempts: 1, summary: "poison: unknown currency", lastError: "boom",
		},
		"middleware.Permanent": {
			handle: func(*message.Message) error { return middleware.Permanent(errBoom) },
			calls:  1, attempts: 1, summary: "poison: boom", lastError: "boom", extra: map[string]string{"error_type": "*errors.errorString"},
		},
		"middleware.RetryAfter": {
			handle: func(*message.Message) error { return middleware.RetryAfter(errBoom, 60*time.Millisecond) },
			calls:  2, attempts: 2, summary: exhausted, lastError: "boom", gap: 60 * time.Millisecond,
		},
		"a middleware of the user's": {
			handle: boom, chain: list(refusing), calls: 0, attempts: 2, summary: exhausted, lastError: "circuit open",
		},
	}
}

// refusing never calls the handler.
func refusing(message.HandlerFunc) message.HandlerFunc {
	return func(*message.Message) ([]*message.Message, error) { return nil, errors.New("circuit open") }
}

// calls counts calls of handlers, and when they were.
type calls struct {
	mu   sync.Mutex
	made map[string][]time.Time
}

func (c *calls) note(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made == nil {
		c.made = map[string][]time.Time{}
	}
	c.made[name] = append(c.made[name], time.Now())
}

func (c *calls) of(name string) []time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made[name]
}

func TestFailingHandlersEndInOneDeadLetter(t *testing.T) {
	t.Parallel()
	pool := database(t)
	cfg := quick(1)
	cfg.Retry = shardpub.RetryPolicy{MaxDeliveries: budget, Delay: 5 * time.Millisecond}
	w := newWorker(t, pool, cfg)
	handlers := failingHandlers(t)
	var made calls
	for name, f := range handlers {
		h := w.AddConsumerHandler(name, "orders", func(msg *message.Message) error {
			made.note(name)
			return f.handle(msg)
		})
		h.AddMiddleware(f.chain...)
	}
	last := add(t, pool, "orders-1", 1)
	start(t, w)
	for name, f := range handlers {
		waitFor(t, w, name, last)
		letters := deadLetters(t, pool, name)
		if len(letters) != 1 {
			t.Errorf("%s: %d dead letters, want 1", name, len(letters))
			continue
		}
		f.check(t, name, letters[0], made.of(name))
	}
}

func (f failing) check(t *testing.T, name string, got kiroku.DeadLetter, made []time.Time) {
	t.Helper()
	if len(made) != f.calls {
		t.Errorf("%s: %d calls, want %d", name, len(made), f.calls)
	}
	if got.Attempts != f.attempts || got.Summary != f.summary {
		t.Errorf("%s: attempt_count %d, summary %q; want %d, %q", name, got.Attempts, got.Summary, f.attempts, f.summary)
	}
	var reason map[string]any
	if err := json.Unmarshal(got.Reason, &reason); err != nil {
		t.Fatal(err)
	}
	if text, _ := reason["last_error"].(string); !strings.HasPrefix(text, f.lastError) {
		t.Errorf("%s: last_error %q, want %q", name, text, f.lastError)
	}
	for key, want := range f.extra {
		if reason[key] != want {
			t.Errorf("%s: %s is %v, want %q", name, key, reason[key], want)
		}
	}
	for i := 1; i < len(made) && f.gap > 0; i++ {
		if gap := made[i].Sub(made[i-1]); gap < f.gap {
			t.Errorf("%s: called again after %s, want %s", name, gap, f.gap)
		}
	}
}

func TestWrongOrderOfStockMiddlewareIsLogged(t *testing.T) {
	t.Parallel()
	queue, err := wm.PoisonQueue(shardpub.NewDeadLetterPublisher(), "parked")
	if err != nil {
		t.Fatal(err)
	}
	retry := wm.Retry{MaxRetries: 3}.Middleware
	for name, test := range map[string]struct {
		chain  []message.HandlerMiddleware
		logged bool
	}{
		"right":      {list(wm.Recoverer, queue, retry), false},
		"wrong":      {list(retry, wm.Recoverer, queue), true},
		"only retry": {list(retry), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log errorLog
			w, err := router.New(unreachable(t), quick(1), &log)
			if err != nil {
				t.Fatal(err)
			}
			w.AddMiddleware(test.chain...)
			if err := w.Start(t.Context()); err == nil {
				t.Error("started without handlers")
			}
			<-w.Done()
			if log.has(router.ErrMiddlewareOrder) != test.logged {
				t.Errorf("logged: %v", log.all())
			}
		})
	}
}
