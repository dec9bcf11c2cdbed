//go:build peers

package main

import "github.com/suisha-go/suisha/internal/bench"

// The peers.
const (
	sql3  = "watermill-sql v3"
	sql4  = "watermill-sql v4"
	river = "River"
	nats  = "JetStream"
)

const sql4Default = sql4 + ", default"

func addDrains(all []bench.Question, events int) {
	var cases []bench.Case
	cases = append(cases, sql3Drains(events)...)
	cases = append(cases, sql4Drains(events)...)
	cases = append(cases, riverDrains(events)...)
	cases = append(cases, natsDrains(events)...)
	bench.With(all, bench.Drain, cases,
		bench.Goal{Text: "suisha ÷ watermill-sql v4, the best of the grid", Figure: bench.RatioToBest(bench.Ours, sql4, "rate"), Target: 1.8},
		bench.Goal{Text: "suisha ÷ watermill-sql v4 by default", Figure: bench.Ratio(bench.Ours, sql4Default, "rate"), Target: 40},
	)
}
