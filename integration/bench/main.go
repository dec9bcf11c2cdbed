// Bench measures suisha beside its peers, in one run, on one server.
//
//	go run . [-only drain,latency] [-repeats 3] [-events 100000] [-list] [-full]
//	         [-json FILE] [-svg DIR] [-markdown FILE] [-dsn DSN] [-budget 8m]
//
// It starts a PostgreSQL of its own that syncs to disk, measures case by case,
// and prints what was reached of which goal, ratios first. A peer that fails,
// loses or repeats an event fails the run. Of a peer's options a listed grid is
// measured, and the best counts.
//
// The peers take minutes to build, so they are built with -tags peers only, as
// make bench does. Without it the program measures what the repository has.
package main

import (
	"os"

	"github.com/suisha-go/suisha/internal/bench"
)

func main() {
	bench.Child()
	os.Exit(bench.Command("bench", os.Args[1:], questions))
}

// questions are those of the repository, with the peers' cases.
func questions(events int) []bench.Question {
	all := bench.Questions(events)
	addPeers(all, events)
	return all
}
