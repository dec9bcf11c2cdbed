//go:build peers

package main

import (
	"time"

	"github.com/suisha-go/suisha/internal/bench"
)

// addSlow adds what handles one message at a time, whatever its options: its
// rate is bounded by the handler, and a few hundred messages show it.
func addSlow(all []bench.Question) {
	const messages, work = 500, 10 * time.Millisecond
	const note = "500 messages: it handles one at a time"
	b := bench.Backlog{Events: messages, Ordered: true, Work: work}
	jobs := bench.Backlog{Events: 10_000, Work: work}
	bench.With(all, bench.Slow, []bench.Case{
		{Name: sql3 + ", default", Peer: sql3, Options: "SubscribeBatchSize 100", Note: note, Once: true, Run: sql3Options{}.drain(b)},
		{Name: sql4Default, Peer: sql4, Options: "SubscribeBatchSize 100", Note: note, Once: true, Run: sql4Options{}.drain(b)},
		{Name: sql4 + ", queue", Peer: sql4, Options: "PostgreSQLQueueSchema, DeleteOnAck", Note: note, Once: true, Run: sql4Options{queue: true}.drain(b)},
		{Name: river + ", 64 workers", Peer: river, Options: riverSlow.String() + "; no order", Note: "10,000 jobs", Once: true, Run: riverSlow.drain(jobs)},
	},
		bench.Goal{Text: "suisha ÷ watermill-sql v4, the best", Figure: bench.RatioToBest(bench.Ours, sql4, "rate"), Target: 50},
	)
}
