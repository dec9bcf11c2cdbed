package shardpub

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/suisha-go/suisha/internal/outcome"
	"github.com/suisha-go/suisha/kiroku"
)

// action is what a verdict asks the subscriber to do with an event.
type action int

const (
	actDone  action = iota // settled
	actRetry               // hand it out again after the delay
	actPark                // write a dead letter
)

// verdict is what became of one delivery (P-34, P-35).
type verdict struct {
	action    action
	delay     time.Duration
	reason    kiroku.Reason
	exhausted bool  // parked because every delivery failed, not because it was asked for
	err       error // what the handler said, if anybody heard
}

// judge decides what follows a delivery. attempt counts from 0. On an Ack only
// a dead letter asked for by the last call counts; on a Nack the verdict of the
// last call, then the policy. random is in [0, 1).
func judge(acked bool, o outcome.Outcome, policy kiroku.RetryPolicy, attempt int, random float64) verdict {
	if o.Permanent {
		return verdict{action: actPark, reason: withAttempts(o.Reason, o.Err, attempt), err: o.Err}
	}
	if acked {
		return verdict{action: actDone}
	}
	if o.Policy != nil {
		policy = *o.Policy
	}
	delay, again := policy.Next(attempt, random)
	if !again {
		reason := kiroku.Reason{Kind: kiroku.MaxAttempts, Attempts: attempt + 1}
		return verdict{action: actPark, reason: withAttempts(reason, o.Err, attempt), exhausted: true, err: o.Err}
	}
	if o.HasAfter {
		delay = max(o.After, 0)
	}
	return verdict{action: actRetry, delay: delay, err: o.Err}
}

// withAttempts adds what the handler last said; kiroku's own keys stay.
func withAttempts(r kiroku.Reason, err error, attempt int) kiroku.Reason {
	extra := map[string]any{"deliveries": attempt + 1}
	if err != nil {
		extra["last_error"] = shorten(err.Error())
		extra["error_type"] = fmt.Sprintf("%T", err)
	}
	maps.Copy(extra, r.Extra)
	r.Extra = extra
	return r
}

// maxErrorText bounds what a dead letter keeps of an error: Recoverer's hold a
// whole stack.
const maxErrorText = 8 << 10

// shorten cuts a text to what a dead letter keeps, at a rune.
func shorten(text string) string {
	if len(text) <= maxErrorText {
		return text
	}
	return strings.ToValidUTF8(text[:maxErrorText], "") + " …"
}
