//go:build peers

package main

import "github.com/suisha-go/suisha/internal/bench"

// addPeers adds the cases of all peers, and the goals that they make possible.
func addPeers(all []bench.Question, events int) {
	addDrains(all, events)
	addSlow(all)
	addLatency(all)
	addAppends(all)
	addIdle(all)
}
