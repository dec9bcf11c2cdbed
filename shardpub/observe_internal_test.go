package shardpub

import (
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/suisha-go/suisha/lease"
)

// silent are the loggers that throw everything away, as people write them.
var silent = []watermill.LoggerAdapter{watermill.NopLogger{}, &watermill.NopLogger{}}

func TestEventsCostNothingWhereNobodyListens(t *testing.T) { //nolint:paralleltest // it counts allocations
	for _, l := range silent {
		for _, kind := range []EventKind{BucketAssigned, BucketRevoked, Retried, DeadLettered, BackedOff} {
			e := Event{Kind: kind, Subscription: "billing", Bucket: 1007, Stream: "orders-1", Position: 4711, Attempt: 300, Reason: lease.Lost}
			if n := testing.AllocsPerRun(100, func() { e.log(l) }); n != 0 {
				t.Errorf("%T, %s: %v allocations", l, kind, n)
			}
		}
	}
}

func TestPublishedMessagesAreLoggedAtNoCostWhereNobodyListens(t *testing.T) { //nolint:paralleltest // it counts allocations
	for _, l := range silent {
		p, batches := newTestPublisher(t, l), make([]batch, 300)
		if n := testing.AllocsPerRun(100, func() { p.log("orders", 1000, batches) }); n != 0 {
			t.Errorf("%T: %v allocations", l, n)
		}
	}
}

func newTestPublisher(t *testing.T, l watermill.LoggerAdapter) *Publisher {
	t.Helper()
	p, err := NewPublisher(noDB{}, PublisherConfig{}, l)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// noDB is never asked.
type noDB struct{ Executor }

// What is said to those who listen.
func TestListenersHearOfEventsAndPublishedMessages(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	e := Event{Subscription: "billing", Bucket: 3, Stream: "orders-1", Position: 7, Attempt: 2, Reason: lease.Lost, Err: boom}
	of := func(more watermill.LogFields) watermill.LogFields {
		return watermill.LogFields{"subscription": "billing", "bucket": 3}.Add(more)
	}
	which := watermill.LogFields{"stream": e.Stream, "position": e.Position, "attempt": 2}
	heard := watermill.NewCaptureLogger()
	for _, kind := range []EventKind{BucketAssigned, BucketRevoked, Retried, DeadLettered, BackedOff} {
		e.Kind = kind
		e.log(heard)
	}
	newTestPublisher(t, heard).log("orders", 2, []batch{{stream: "orders-1"}})
	for _, want := range []watermill.CapturedMessage{
		{Level: watermill.InfoLogLevel, Msg: "Bucket assigned", Fields: of(watermill.LogFields{"position": e.Position})},
		{Level: watermill.InfoLogLevel, Msg: "Bucket revoked", Fields: of(watermill.LogFields{"reason": e.Reason})},
		{Level: watermill.DebugLogLevel, Msg: "Event will be delivered again", Fields: of(which)},
		{Level: watermill.ErrorLogLevel, Msg: "Event became a dead letter", Err: boom, Fields: of(watermill.LogFields{"stream": e.Stream, "position": e.Position, "deliveries": 3})},
		{Level: watermill.ErrorLogLevel, Msg: "Bucket backs off: events fail one after another", Err: boom, Fields: of(which)},
		{Level: watermill.TraceLogLevel, Msg: "Messages appended", Fields: watermill.LogFields{"provider": "suisha", "topic": "orders", "messages": 2, "streams": 1}},
	} {
		if !heard.Has(want) {
			t.Errorf("not heard: %+v", want)
		}
	}
}

// Who forgot the keys, and wonders why events are handled one by one, finds it in the
// log; who chose to have none does not.
func TestMessagesWithoutAKeyAreSaidOnce(t *testing.T) {
	t.Parallel()
	none, one := []batch{{stream: "orders"}}, []batch{{stream: "orders-1"}}
	said := func(p *Publisher, heard *watermill.CaptureLoggerAdapter, batches []batch) int {
		p.log("orders", 1, batches)
		return len(heard.Captured()[watermill.InfoLogLevel])
	}
	heard := watermill.NewCaptureLogger()
	p := newTestPublisher(t, heard)
	if n := said(p, heard, one); n != 0 {
		t.Errorf("%d messages about keys where there are some", n)
	}
	for range 3 {
		if n := said(p, heard, none); n != 1 {
			t.Errorf("said %d times that keys are missing, want once", n)
		}
	}
	p = newTestPublisher(t, heard)
	p.cfg.Key = KeyFromMetadata
	if n := said(p, heard, none); n != 1 {
		t.Error("said that keys are missing to one who chooses them")
	}
}
