package bench

import (
	"fmt"
	"time"
)

// The questions, by ID.
const (
	Drain     = "drain"
	Slow      = "slow"
	Scale     = "scale"
	Sparse    = "sparse"
	Workers   = "workers"
	Latency   = "latency"
	Append1   = "append1"
	Append16  = "append16"
	Batches   = "batches"
	Idle      = "idle"
	Busy      = "busy"
	Footprint = "footprint"
	Peak      = "peak"
)

// usual is the store that is drained.
func usual(events int) Load { return Load{Events: events, Streams: min(1000, events)} }

const usualBuckets = 16

// Questions are all questions with the cases that need nothing but this module,
// for a number of events.
func Questions(events int) []Question {
	all := []Question{
		drainQuestion(events),
		slowQuestion(events),
		scaleQuestion(events),
		sparseQuestion(events),
		workersQuestion(events),
		latencyQuestion(),
	}
	all = append(all, appendQuestions()...)
	all = append(all, idleQuestion(), busyQuestion(events))
	return append(all, memoryQuestions(events)...)
}

// With adds cases of peers and the goals that they make possible to the question
// of that ID.
func With(all []Question, id string, cases []Case, goals ...Goal) {
	for i := range all {
		if all[i].ID == id {
			all[i].Cases = append(all[i].Cases, cases...)
			all[i].Goals = append(all[i].Goals, goals...)
		}
	}
}

func drainQuestion(events int) Question {
	l := usual(events)
	return Question{
		ID: Drain, Title: "Drain what waits: no-op handler, default options, 16 buckets, 1,000 streams",
		Primary: "rate", Unit: "events/s",
		Cases: []Case{
			{Name: Ours, Options: "Shards 16", Run: drain{load: l, category: Orders, buckets: usualBuckets}.run},
			{Name: PageAll, Options: "no router, one goroutine, a checkpoint per page", Run: reader(l, pageAll)},
			{Name: Everything, Options: "no router, events and log joined, in order", Run: reader(l, everything)},
			{Name: BareRouter, Options: "messages from memory, one handler, a context each, 64 in flight", Run: bareRouter},
			{Name: KeiroRead, Options: "8 buckets, pages of 100, 8 connections, a checkpoint per page; no router", Note: PartNote, Once: true, Run: keiroRead(l)},
		},
		Goals: []Goal{
			{Text: "suisha ÷ one goroutine that pages $all by 1,000", Figure: Ratio(Ours, PageAll, "rate"), Target: 1},
			{Text: "suisha ÷ the bare Watermill router", Figure: Ratio(Ours, BareRouter, "rate"), Target: 0.5},
			{Text: "suisha ÷ keiro's read statement", Figure: Ratio(Ours, KeiroRead, "rate"), Target: 40},
		},
	}
}

func slowQuestion(events int) Question {
	const lanes, work = 64, 10 * time.Millisecond
	l := usual(min(events, 30_000))
	return Question{
		ID: Slow, Title: "Handlers that take 10 ms: 64 lanes, 1,000 streams, 30,000 events",
		Primary: "rate", Unit: "events/s",
		Cases: []Case{
			// A bucket may use more than its sixteenth of the lanes: they are never even.
			{Name: Ours, Options: "Shards 16, Concurrency 16, MaxInFlight 64", Run: drain{
				load: l, category: Orders, buckets: usualBuckets, concurrency: lanes / 4, inFlight: lanes, work: work,
			}.run},
		},
		Goals: []Goal{
			{Text: "suisha ÷ (64 lanes ÷ 10 ms)", Figure: func(v View) (float64, bool) {
				x, ok := v.Of(Ours, "rate")
				return x / (lanes / work.Seconds()), ok
			}, Target: 0.9},
		},
	}
}

func scaleQuestion(events int) Question {
	of := func(buckets, streams int) Case {
		return Case{
			Name:    fmt.Sprintf("%s, %s buckets, %s streams", Ours, thousands(float64(buckets)), thousands(float64(streams))),
			Options: "Shards " + thousands(float64(buckets)),
			Run:     drain{load: Load{Events: events, Streams: min(streams, events)}, category: Orders, buckets: buckets}.run,
		}
	}
	usual, buckets, streams := of(usualBuckets, 1000), of(1024, 1000), of(usualBuckets, 100_000)
	return Question{
		ID: Scale, Title: "More buckets, more streams", Primary: "rate", Unit: "events/s",
		Cases: []Case{usual, of(128, 1000), buckets, of(usualBuckets, 10_000), streams},
		Goals: []Goal{
			{Text: "1,024 buckets ÷ 16", Figure: Ratio(buckets.Name, usual.Name, steady), Target: 0.9},
			{Text: "100,000 streams ÷ 1,000", Figure: Ratio(streams.Name, usual.Name, steady), Target: 0.9},
		},
	}
}
