package shardpub

import (
	"errors"
	"testing"
	"time"

	"github.com/suisha-go/suisha/internal/outcome"
	"github.com/suisha-go/suisha/kiroku"
)

// A verdict is made of every delivery; nearly all are that it is done.
func BenchmarkJudge(b *testing.B) {
	boom := errors.New("boom")
	policy := kiroku.RetryPolicy{MaxDeliveries: 8, Delay: time.Second, Multiplier: 2, Jitter: 0.1}
	failed := outcome.Outcome{Called: true, Err: boom}
	permanent := outcome.Outcome{Called: true, Err: boom, Permanent: true, Reason: kiroku.Reason{Kind: kiroku.Poison, Detail: "boom"}}
	for _, c := range []struct {
		name    string
		acked   bool
		outcome outcome.Outcome
		attempt int
		want    action
	}{
		{"done", true, outcome.Outcome{Called: true}, 0, actDone},
		{"again", false, failed, 5, actRetry},
		{"used up", false, failed, 7, actPark},
		{"permanent", false, permanent, 0, actPark},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if v := judge(c.acked, c.outcome, policy, c.attempt, 0.5); v.action != c.want {
					b.Fatalf("%+v", v)
				}
			}
		})
	}
}
