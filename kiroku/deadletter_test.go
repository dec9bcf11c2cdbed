package kiroku_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/suisha-go/suisha/kiroku"
)

func deadLetter(subscription string, member int, p kiroku.Position, id uuid.UUID) kiroku.DeadLetter {
	return kiroku.DeadLetter{
		Subscription: subscription, Member: member, Position: p, EventID: id,
		Reason: json.RawMessage(`{"kind": "max_attempts_exceeded", "attempts": 5}`), Summary: "max retry attempts exceeded (5)", Attempts: 5,
	}
}

// eventually polls until the condition holds.
func eventually(tb testing.TB, condition func() bool) {
	tb.Helper()
	deadline := time.Now().Add(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		if time.Now().After(deadline) {
			tb.Fatal("did not happen within 20 s")
		}
		<-tick.C
	}
}
