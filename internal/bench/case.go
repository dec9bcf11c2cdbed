package bench

import (
	"context"
	"slices"
)

// Values are what one run of a case measured, by name: "rate" in events per
// second, "p50" in milliseconds, and so on.
type Values map[string]float64

// Case is one thing that is measured for a question.
type Case struct {
	// Name says what it is.
	Name string
	// Peer is the name of whom it belongs to. Of the cases of one peer the best
	// counts. Empty: a case of ours, or a limit, which stand for themselves.
	Peer string
	// Options are all that is not default about it.
	Options string
	// Note says what is special about how it is measured.
	Note string
	// Once: it is too slow to be measured again.
	Once bool
	// Run measures it once. An event that is lost, repeated or out of order is an
	// error.
	Run func(context.Context, *Env) (Values, error)
}

// Env is what a case works with.
type Env struct {
	Server *Server
	// Events is how many are drained, 100,000 unless it is a test.
	Events int
	// Full: measure slow peers to the end.
	Full bool
	// Brief: it is a test, what takes its time anyway takes a tenth of it.
	Brief bool
}

// Question is what is asked, of whom, and which answers are hoped for.
type Question struct {
	ID    string
	Title string
	// Primary is the value that the chart shows, and its unit. Low says that less
	// is better.
	Primary, Unit string
	Low           bool
	Cases         []Case
	Goals         []Goal
	// Together: its cases run at the same time; they hardly do anything.
	Together bool
}

// Goal is a figure to reach.
type Goal struct {
	// Text says what the figure is.
	Text string
	// Figure makes it of what was measured; false when something is missing.
	Figure func(View) (float64, bool)
	// Target is what it must be at least, or at most if Most is set.
	Target float64
	Most   bool
	Unit   string
}

// View is what was measured for one question: the medians.
type View struct {
	question *Question
	medians  map[string]Values
}

// Of is a value of a case.
func (v View) Of(name, value string) (float64, bool) {
	x, ok := v.medians[name][value]
	return x, ok
}

// Best is the best of a peer's values, and the case that it is of.
func (v View) Best(peer, value string) (x float64, name string, ok bool) {
	for _, c := range v.question.Cases {
		if c.Peer != peer {
			continue
		}
		y, measured := v.medians[c.Name][value]
		if measured && (!ok || (y < x) == v.question.Low) {
			x, name, ok = y, c.Name, true
		}
	}
	return x, name, ok
}

// peers lists the peers of a question.
func (q *Question) peers() []string {
	var all []string
	for _, c := range q.Cases {
		if c.Peer != "" && !slices.Contains(all, c.Peer) {
			all = append(all, c.Peer)
		}
	}
	return all
}

// Ratio is the figure of a value of ours over one of another case, or the other
// way round where less is better.
func Ratio(ours, other, value string) func(View) (float64, bool) {
	return func(v View) (float64, bool) {
		a, okA := v.Of(ours, value)
		b, okB := v.Of(other, value)
		return v.quotient(a, b), okA && okB && a > 0 && b > 0
	}
}

// RatioToBest is Ratio with the best of a peer's cases.
func RatioToBest(ours, peer, value string) func(View) (float64, bool) {
	return func(v View) (float64, bool) {
		a, okA := v.Of(ours, value)
		b, _, okB := v.Best(peer, value)
		return v.quotient(a, b), okA && okB && a > 0 && b > 0
	}
}

func (v View) quotient(a, b float64) float64 {
	if v.question.Low {
		return b / a
	}
	return a / b
}

// Value is the figure of a value itself.
func Value(name, value string) func(View) (float64, bool) {
	return func(v View) (float64, bool) { return v.Of(name, value) }
}
