package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	wm "github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/suisha-go/suisha/internal/outcome"
	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/middleware"
	"github.com/suisha-go/suisha/shardpub"
)

var (
	errBoom    = errors.New("boom")
	errInvalid = errors.New("invalid")
)

// delivery is a message of ours with its slot.
func delivery(tb testing.TB, refuse func() error) (*message.Message, *outcome.Slot) {
	tb.Helper()
	slot := outcome.NewSlot(refuse)
	msg := message.NewMessage("1", nil)
	msg.SetContext(outcome.With(tb.Context(), slot))
	return msg, slot
}

func returning(err error) message.HandlerFunc {
	return func(*message.Message) ([]*message.Message, error) { return nil, err }
}

// chain puts middleware around a handler, the first outermost, as a router does.
func chain(h message.HandlerFunc, all ...message.HandlerMiddleware) message.HandlerFunc {
	for _, m := range slices.Backward(all) {
		h = m(h)
	}
	return h
}

func knowsInvalid(err error) (string, bool) {
	return "not in the catalogue", errors.Is(err, errInvalid)
}

func knowsInvalidWithoutWords(err error) (string, bool) { return "", errors.Is(err, errInvalid) }

func poison(detail string) kiroku.Reason { return kiroku.Reason{Kind: kiroku.Poison, Detail: detail} }

func TestVerdicts(t *testing.T) {
	t.Parallel()
	policy := shardpub.RetryPolicy{MaxDeliveries: 9}
	permanent := middleware.Permanent(errBoom)
	later := middleware.RetryAfter(errBoom, time.Minute)
	tests := map[string]struct {
		err   error
		chain []message.HandlerMiddleware
		want  outcome.Outcome
	}{
		"success": {chain: mark(), want: outcome.Outcome{Called: true}},
		"error":   {err: errBoom, chain: mark(), want: outcome.Outcome{Called: true, Err: errBoom}},
		"permanent": {
			err: permanent, chain: mark(),
			want: outcome.Outcome{Called: true, Err: errBoom, Permanent: true, Reason: poison("boom")},
		},
		"retry after": {
			err: later, chain: mark(),
			want: outcome.Outcome{Called: true, Err: errBoom, HasAfter: true, After: time.Minute},
		},
		"retry after a negative time": {
			err: middleware.RetryAfter(errBoom, -time.Second), chain: mark(),
			want: outcome.Outcome{Called: true, Err: errBoom, HasAfter: true},
		},
		"policy": {
			err: errBoom, chain: list(middleware.Retry(policy)),
			want: outcome.Outcome{Called: true, Err: errBoom, Policy: &policy},
		},
		"policy of a success": {
			chain: list(middleware.Retry(policy)),
			want:  outcome.Outcome{Called: true, Policy: &policy},
		},
		"innermost policy": {
			err: errBoom, chain: list(middleware.Retry(shardpub.RetryPolicy{MaxDeliveries: 2}), middleware.Mark(), middleware.Retry(policy)),
			want: outcome.Outcome{Called: true, Err: errBoom, Policy: &policy},
		},
		"classified": {
			err: errInvalid, chain: list(middleware.DeadLetter(knowsInvalid)),
			want: outcome.Outcome{Called: true, Err: errInvalid, Permanent: true, Classified: true, Reason: poison("not in the catalogue")},
		},
		"classified without words": {
			err: errInvalid, chain: list(middleware.DeadLetter(knowsInvalidWithoutWords)),
			want: outcome.Outcome{Called: true, Err: errInvalid, Permanent: true, Classified: true, Reason: poison("invalid")},
		},
		"not classified": {
			err: errBoom, chain: list(middleware.DeadLetter(knowsInvalid)),
			want: outcome.Outcome{Called: true, Err: errBoom},
		},
		"nil classifier": {
			err: errBoom, chain: list(middleware.DeadLetter(nil)),
			want: outcome.Outcome{Called: true, Err: errBoom},
		},
		"permanent outranks classified, outside": {
			err: middleware.Permanent(errInvalid), chain: list(middleware.DeadLetter(knowsInvalid), middleware.Mark()),
			want: outcome.Outcome{Called: true, Err: errInvalid, Permanent: true, Reason: poison("invalid")},
		},
		"permanent outranks classified, inside": {
			err: middleware.Permanent(errInvalid), chain: list(middleware.Mark(), middleware.DeadLetter(knowsInvalid)),
			want: outcome.Outcome{Called: true, Err: errInvalid, Permanent: true, Reason: poison("invalid")},
		},
		"classified outranks retry after": {
			err: middleware.RetryAfter(errInvalid, time.Minute), chain: list(middleware.DeadLetter(knowsInvalid), middleware.Mark()),
			want: outcome.Outcome{
				Called: true, Err: errInvalid, Permanent: true, Classified: true,
				Reason: poison("not in the catalogue"), HasAfter: true, After: time.Minute,
			},
		},
		"wrapped in Go's way": {
			err: joined(permanent), chain: mark(),
			want: outcome.Outcome{Called: true, Err: joined(permanent), Permanent: true, Reason: poison(joined(permanent).Error())},
		},
		"both": {
			err: middleware.RetryAfter(permanent, time.Minute), chain: mark(),
			want: outcome.Outcome{
				Called: true, Err: errBoom, Permanent: true, Reason: poison("boom"), HasAfter: true, After: time.Minute,
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			msg, slot := delivery(t, nil)
			if _, err := chain(returning(test.err), test.chain...)(msg); !sameError(err, test.err) {
				t.Errorf("error %v, want the handler's own", err)
			}
			if got := slot.Freeze(); !reflect.DeepEqual(got, test.want) {
				t.Errorf("outcome\n%+v, want\n%+v", got, test.want)
			}
		})
	}
}

func mark() []message.HandlerMiddleware { return list(middleware.Mark()) }

func list(all ...message.HandlerMiddleware) []message.HandlerMiddleware { return all }

// joined hides an error in a join in a wrap.
func joined(err error) error {
	return fmt.Errorf("handle order: %w", errors.Join(errInvalid, fmt.Errorf("charge: %w", err)))
}

func sameError(a, b error) bool { return reflect.DeepEqual(a, b) }

func TestOrderOfOurMiddlewareDoesNotMatter(t *testing.T) {
	t.Parallel()
	all := list(
		middleware.Mark(),
		middleware.Retry(shardpub.RetryPolicy{MaxDeliveries: 9}),
		middleware.DeadLetter(knowsInvalid),
	)
	orders := [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}
	for _, err := range []error{
		nil, errBoom, errInvalid, middleware.Permanent(errInvalid), middleware.RetryAfter(errInvalid, time.Second),
		joined(middleware.Permanent(errBoom)),
	} {
		var want outcome.Outcome
		for i, order := range orders {
			msg, slot := delivery(t, nil)
			_, _ = chain(returning(err), all[order[0]], all[order[1]], all[order[2]])(msg)
			got := slot.Freeze()
			if i == 0 {
				want = got
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%v in order %v: %+v, want %+v", err, order, got, want)
			}
		}
	}
}

// A verdict belongs to one call of the handler (P-34).
func TestVerdictOfAFirstTryDoesNotOutliveALaterSuccess(t *testing.T) {
	t.Parallel()
	msg, slot := delivery(t, nil)
	calls := 0
	handler := func(*message.Message) ([]*message.Message, error) {
		if calls++; calls < 3 {
			return nil, middleware.RetryAfter(middleware.Permanent(errInvalid), time.Hour)
		}
		return nil, nil
	}
	policy := shardpub.RetryPolicy{MaxDeliveries: 9}
	again := wm.Retry{MaxRetries: 5, InitialInterval: time.Microsecond}.Middleware
	h := chain(handler, middleware.Retry(policy), again, middleware.DeadLetter(knowsInvalid), middleware.Mark())
	if _, err := h(msg); err != nil || calls != 3 {
		t.Fatalf("error %v after %d calls", err, calls)
	}
	if got, want := slot.Freeze(), (outcome.Outcome{Called: true, Policy: &policy}); !reflect.DeepEqual(got, want) {
		t.Errorf("outcome %+v, want %+v", got, want)
	}
}

func TestMiddlewareBetweenMayChangeOrSwallowTheError(t *testing.T) {
	t.Parallel()
	wrap := func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			_, err := h(msg)
			return nil, fmt.Errorf("outer: %w", err)
		}
	}
	msg, slot := delivery(t, nil)
	_, err := chain(returning(middleware.Permanent(errBoom)), middleware.Mark(), wrap, middleware.Mark())(msg)
	got := slot.Freeze()
	if got.Err == nil || got.Err.Error() != "outer: boom" || !got.Permanent || !errors.Is(err, errBoom) {
		t.Errorf("outcome %+v, error %v", got, err)
	}

	translate := func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			_, _ = h(msg)
			return nil, errInvalid
		}
	}
	msg, slot = delivery(t, nil)
	_, _ = chain(returning(middleware.Permanent(errBoom)), middleware.DeadLetter(knowsInvalid), translate, middleware.Mark())(msg)
	if got = slot.Freeze(); got.Classified || got.Reason.Detail != "boom" {
		t.Errorf("a classifier outside outranked Permanent inside: %+v", got)
	}

	queue, err := wm.PoisonQueue(shardpub.NewDeadLetterPublisher(), "dead_letters")
	if err != nil {
		t.Fatal(err)
	}
	msg, slot = delivery(t, nil)
	_, err = chain(returning(errBoom), middleware.Mark(), queue, middleware.Mark())(msg)
	got = slot.Freeze()
	if err != nil || !got.Permanent || got.Reason.Kind != kiroku.Poison || got.Reason.Detail != "boom" {
		t.Errorf("after a PoisonQueue: outcome %+v, error %v", got, err)
	}
	if !errors.Is(got.Err, errBoom) {
		t.Errorf("after a PoisonQueue the last error is %v", got.Err)
	}
}

// A message of another Pub/Sub passes as if nothing were there.
func TestForeignMessagePassesUnchanged(t *testing.T) {
	t.Parallel()
	all := list(middleware.Mark(), middleware.Retry(shardpub.RetryPolicy{}), middleware.DeadLetter(knowsInvalid))
	for _, err := range []error{nil, errInvalid, middleware.Permanent(errBoom), joined(middleware.RetryAfter(errBoom, time.Hour))} {
		produced := message.Messages{message.NewMessage("2", nil)}
		msg := message.NewMessage("1", nil)
		ctx := msg.Context()
		h := chain(func(*message.Message) ([]*message.Message, error) { return produced, err }, all...)
		out, got := h(msg)
		if !sameError(got, err) || len(out) != 1 || out[0] != produced[0] || msg.Context() != ctx {
			t.Errorf("%v became %v, produced %v", err, got, out)
		}
	}
}

// After the source's own cancellation nothing is marked (P-35).
func TestNothingIsMarkedAfterTheSourceCancelled(t *testing.T) {
	t.Parallel()
	cancelled := errors.New("bucket lost")
	msg, slot := delivery(t, func() error { return cancelled })
	h := chain(returning(middleware.Permanent(context.Canceled)), middleware.Retry(shardpub.RetryPolicy{}), middleware.DeadLetter(knowsInvalid))
	if _, err := h(msg); !errors.Is(err, context.Canceled) || errors.Is(err, cancelled) {
		t.Errorf("error %v, want the handler's own", err)
	}
	if got := slot.Freeze(); !reflect.DeepEqual(got, outcome.Outcome{}) {
		t.Errorf("outcome %+v, want none", got)
	}
}

func TestNothingIsMarkedAfterAnEarlyAck(t *testing.T) {
	t.Parallel()
	msg, slot := delivery(t, nil)
	h := chain(func(*message.Message) ([]*message.Message, error) {
		slot.Freeze()
		return nil, middleware.Permanent(errBoom)
	}, middleware.Mark())
	if _, err := h(msg); !errors.Is(err, errBoom) {
		t.Errorf("error %v", err)
	}
	if got := slot.Freeze(); got.Permanent || got.Err != nil {
		t.Errorf("outcome %+v", got)
	}
}
