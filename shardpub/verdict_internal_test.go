package shardpub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/suisha-go/suisha/internal/outcome"
	"github.com/suisha-go/suisha/kiroku"
)

// wobble is an error with a type of its own.
type wobble struct{}

func (*wobble) Error() string { return "wobbled" }

// TestJudge covers P-34, and of P-35 that a handler's own cancellation, panic
// and timeout are failures like any other.
func TestJudge(t *testing.T) {
	t.Parallel()
	var (
		three   = kiroku.RetryPolicy{MaxDeliveries: 3, Delay: 10 * time.Second}
		once    = kiroku.RetryPolicy{MaxDeliveries: 1}
		forever = kiroku.RetryPolicy{MaxDeliveries: kiroku.Unlimited, Delay: time.Second}
		poison  = kiroku.Reason{Kind: kiroku.Poison, Detail: "no such account"}
		boom    = errors.New("boom")
		max5    = func(n int) kiroku.Reason { return kiroku.Reason{Kind: kiroku.MaxAttempts, Attempts: n} }
	)
	for _, c := range []struct {
		name    string
		acked   bool
		outcome outcome.Outcome
		policy  kiroku.RetryPolicy
		attempt int
		want    verdict // without Extra and err
	}{
		{
			name: "Ack settles", acked: true, outcome: outcome.Outcome{Called: true}, policy: three,
			want: verdict{action: actDone},
		},
		{
			name: "Ack settles where nobody marks", acked: true, policy: three, attempt: 2,
			want: verdict{action: actDone},
		},
		{
			name: "Ack outranks an error that something above the marking swallowed", acked: true,
			outcome: outcome.Outcome{Called: true, Err: boom}, policy: three, attempt: 2,
			want: verdict{action: actDone},
		},
		{
			name: "Ack outranks RetryAfter", acked: true,
			outcome: outcome.Outcome{Called: true, Err: boom, HasAfter: true, After: time.Minute}, policy: three,
			want: verdict{action: actDone},
		},
		{
			name: "Ack with a dead letter asked for parks", acked: true,
			outcome: outcome.Outcome{Called: true, Err: boom, Permanent: true, Reason: poison}, policy: three,
			want: verdict{action: actPark, reason: poison},
		},
		{
			name:    "Nack with a dead letter asked for parks at once",
			outcome: outcome.Outcome{Called: true, Err: boom, Permanent: true, Reason: poison}, policy: forever,
			want: verdict{action: actPark, reason: poison},
		},
		{
			name: "a dead letter asked for outranks RetryAfter, the handler's policy and the budget",
			outcome: outcome.Outcome{
				Called: true, Err: boom, Permanent: true, Reason: poison,
				HasAfter: true, After: time.Minute, Policy: &forever,
			},
			policy: once, attempt: 7,
			want: verdict{action: actPark, reason: poison},
		},
		{
			name:   "Nack retries under the subscription's policy",
			policy: three,
			want:   verdict{action: actRetry, delay: 10 * time.Second},
		},
		{
			name:   "Nack before the last delivery retries",
			policy: three, attempt: 1,
			want: verdict{action: actRetry, delay: 10 * time.Second},
		},
		{
			name:   "Nack of the last delivery gives up",
			policy: three, attempt: 2, outcome: outcome.Outcome{Called: true, Err: boom},
			want: verdict{action: actPark, reason: max5(3), exhausted: true},
		},
		{
			name:   "a single delivery gives up at once",
			policy: once,
			want:   verdict{action: actPark, reason: max5(1), exhausted: true},
		},
		{
			name:    "the zero policy gives up after five",
			attempt: 4,
			want:    verdict{action: actPark, reason: max5(5), exhausted: true},
		},
		{
			name:   "Unlimited never gives up",
			policy: forever, attempt: 1_000_000,
			want: verdict{action: actRetry, delay: time.Second},
		},
		{
			name: "RetryAfter replaces the policy's delay", policy: three,
			outcome: outcome.Outcome{Called: true, Err: boom, HasAfter: true, After: time.Minute},
			want:    verdict{action: actRetry, delay: time.Minute},
		},
		{
			name: "RetryAfter of zero is at once", policy: three,
			outcome: outcome.Outcome{Called: true, Err: boom, HasAfter: true},
			want:    verdict{action: actRetry},
		},
		{
			name: "RetryAfter of less than zero is at once", policy: three,
			outcome: outcome.Outcome{Called: true, Err: boom, HasAfter: true, After: -time.Hour},
			want:    verdict{action: actRetry},
		},
		{
			name: "RetryAfter is counted", policy: three, attempt: 2,
			outcome: outcome.Outcome{Called: true, Err: boom, HasAfter: true, After: time.Minute},
			want:    verdict{action: actPark, reason: max5(3), exhausted: true},
		},
		{
			name: "a delay without HasAfter means nothing", policy: three,
			outcome: outcome.Outcome{Called: true, Err: boom, After: time.Minute},
			want:    verdict{action: actRetry, delay: 10 * time.Second},
		},
		{
			name: "the handler's policy replaces the subscription's", policy: three,
			outcome: outcome.Outcome{Policy: &once},
			want:    verdict{action: actPark, reason: max5(1), exhausted: true},
		},
		{
			name: "also where it allows more", policy: once, attempt: 9,
			outcome: outcome.Outcome{Policy: &forever},
			want:    verdict{action: actRetry, delay: time.Second},
		},
		{
			name: "RetryAfter goes with the handler's policy", policy: once,
			outcome: outcome.Outcome{Called: true, Err: boom, Policy: &three, HasAfter: true, After: time.Minute},
			want:    verdict{action: actRetry, delay: time.Minute},
		},
		{
			name: "the handler's own context.Canceled is a failed attempt", policy: three, attempt: 2,
			outcome: outcome.Outcome{Called: true, Err: context.Canceled},
			want:    verdict{action: actPark, reason: max5(3), exhausted: true},
		},
		{
			name: "a timeout is a failed attempt", policy: three,
			outcome: outcome.Outcome{Called: true, Err: context.DeadlineExceeded},
			want:    verdict{action: actRetry, delay: 10 * time.Second},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := judge(c.acked, c.outcome, c.policy, c.attempt, 0.5)
			if got.action != actDone && !errors.Is(got.err, c.outcome.Err) {
				t.Errorf("err = %v, want %v", got.err, c.outcome.Err)
			}
			if parked := got.action == actPark; parked != (got.reason.Extra["deliveries"] == c.attempt+1) {
				t.Errorf("extra = %v at attempt %d, parked: %v", got.reason.Extra, c.attempt, parked)
			}
			got.err, got.reason.Extra = nil, nil
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("judge = %+v, want %+v", got, c.want)
			}
		})
	}
}

// TestJudgePlacesTheJitter: random reaches the policy.
func TestJudgePlacesTheJitter(t *testing.T) {
	t.Parallel()
	policy := kiroku.RetryPolicy{Delay: time.Second, Jitter: 0.5}
	for random, want := range map[float64]time.Duration{
		0: 500 * time.Millisecond, 0.5: time.Second, 0.75: 1250 * time.Millisecond,
	} {
		if got := judge(false, outcome.Outcome{}, policy, 0, random); got.delay != want {
			t.Errorf("random %v: delay %v, want %v", random, got.delay, want)
		}
	}
}

// TestDeadLetterSaysWhatTheHandlerLastSaid: S-49.
func TestDeadLetterSaysWhatTheHandlerLastSaid(t *testing.T) {
	t.Parallel()
	failure := fmt.Errorf("charge: %w", &wobble{})
	for _, c := range []struct {
		name    string
		outcome outcome.Outcome
		attempt int
		want    string
	}{
		{
			"exhausted",
			outcome.Outcome{Called: true, Err: failure},
			4,
			`{"attempts":5,"deliveries":5,"error_type":"*fmt.wrapError","kind":"max_attempts_exceeded","last_error":"charge: wobbled"}`,
		},
		{
			"exhausted where nobody marks",
			outcome.Outcome{},
			4,
			`{"attempts":5,"deliveries":5,"kind":"max_attempts_exceeded"}`,
		},
		{
			"poison",
			outcome.Outcome{Called: true, Err: &wobble{}, Permanent: true, Reason: kiroku.Reason{Kind: kiroku.Poison, Detail: "bad"}},
			0,
			`{"deliveries":1,"detail":"bad","error_type":"*shardpub.wobble","kind":"poison","last_error":"wobbled"}`,
		},
		{
			"what the reason brings itself",
			outcome.Outcome{Called: true, Err: &wobble{}, Permanent: true, Reason: kiroku.Reason{
				Kind: kiroku.Other, Detail: "E7: closed", Extra: map[string]any{"detail": map[string]int{"code": 7}, "last_error": "mine"},
			}},
			1,
			`{"deliveries":2,"detail":{"code":7},"error_type":"*shardpub.wobble","kind":"other","last_error":"mine","summary":"E7: closed"}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			before := maps.Clone(c.outcome.Reason.Extra)
			got, err := json.Marshal(judge(false, c.outcome, kiroku.RetryPolicy{}, c.attempt, 0).reason)
			if err != nil || string(got) != c.want {
				t.Errorf("reason = %s, %v, want %s", got, err, c.want)
			}
			if !reflect.DeepEqual(c.outcome.Reason.Extra, before) {
				t.Errorf("the caller's Extra became %v", c.outcome.Reason.Extra)
			}
		})
	}
}

// TestExtraNeverReplacesKirokusOwnKeys, whatever a handler puts there.
func TestExtraNeverReplacesKirokusOwnKeys(t *testing.T) {
	t.Parallel()
	own := map[kiroku.ReasonKind][]string{
		kiroku.Poison:         {"kind", "detail"},
		kiroku.InvalidPayload: {"kind", "detail"},
		kiroku.MaxAttempts:    {"kind", "attempts"},
		kiroku.Other:          {"kind", "summary"},
	}
	keys := []string{"kind", "detail", "attempts", "summary", "deliveries", "last_error", "error_type", "tenant"}
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]kiroku.ReasonKind{kiroku.Poison, kiroku.InvalidPayload, kiroku.MaxAttempts, kiroku.Other}).Draw(t, "kind")
		reason := kiroku.Reason{Kind: kind, Detail: "theirs", Attempts: 3, Extra: map[string]any{}}
		for _, key := range rapid.SliceOf(rapid.SampledFrom(keys)).Draw(t, "extra") {
			reason.Extra[key] = "forged"
		}
		plain := decodeReason(t, kiroku.Reason{Kind: kind, Detail: "theirs", Attempts: 3})
		o := outcome.Outcome{Called: true, Err: &wobble{}, Permanent: true, Reason: reason}
		judged := judge(false, o, kiroku.RetryPolicy{}, 0, 0).reason
		got := decodeReason(t, judged)
		for _, key := range own[kind] {
			if !reflect.DeepEqual(got[key], plain[key]) {
				t.Fatalf("%s of %s = %v, want %v", key, kind, got[key], plain[key])
			}
		}
		if want := reason.Summary(); judged.Summary() != want {
			t.Fatalf("summary = %q, want %q", judged.Summary(), want)
		}
	})
}

func decodeReason(t *rapid.T, r kiroku.Reason) map[string]any {
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	return m
}
