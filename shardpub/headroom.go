package shardpub

import "runtime/debug"

// headroom is memory that a Node holds, once it has had to catch up, and never
// touches. Go collects garbage when the heap has doubled, and a worker keeps next to
// nothing: at full speed that would be every thousand events, for more than a third of
// its processor time (docs/BENCHMARKS.md). The collector counts what is held, so it
// lets the heap grow by as much first.
//
// It costs address space, and at most its size in memory that is collected later.
type headroom []byte

const (
	headroomSize = 16 << 20
	// tightMemory is a GOMEMLIMIT that is not to be used up by it.
	tightMemory = 16 * headroomSize
)

// hold is called when the log goes on behind a page of the buckets that have read
// furthest.
func (h *headroom) hold() {
	if *h == nil && debug.SetMemoryLimit(-1) >= tightMemory { // a negative one is not set
		*h = make(headroom, headroomSize)
	}
}
