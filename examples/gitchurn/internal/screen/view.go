// Package screen shows a run of the demo: in place on a terminal, as plain
// lines elsewhere.
package screen

import "time"

// View is what there is to see at one moment.
type View struct {
	// Task says what the bar counts.
	Task string
	// Done of Total units are done. A Total of zero is not known; with nothing
	// done, either, only Task and Unit are shown.
	Done, Total int64
	// Unit names what is counted, in the plural.
	Unit string
	// Rate is units per second, lately; zero is not shown.
	Rate float64
	// Elapsed is the time since the run began.
	Elapsed time.Duration
	// Workers are the processes, in the order of their numbers.
	Workers []Worker
	// Maps say who owns what, one per subscription.
	Maps []Map
}

// Worker is one worker process.
type Worker struct {
	// Number is 1 for the first. It chooses the colour.
	Number int
	PID    int
	// State is a word or two on what it is doing; Alive chooses the sign.
	State string
	Alive bool
	// Buckets is the number of buckets that it owns.
	Buckets int
}

// Map is the ownership of one subscription.
type Map struct {
	Subscription string
	Buckets      []Bucket
}

// Bucket is one bucket of a subscription.
type Bucket struct {
	// Owner is the number of the worker that owns it; zero is nobody.
	Owner int
	// Done is how much of its events it has behind it, 0 to 1.
	Done float64
}
