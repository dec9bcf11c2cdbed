package shardpub

import (
	"runtime/debug"
	"strings"
)

// headroom is memory that a Node holds, once it has had to catch up, and never
// touches. Go collects garbage when the heap has doubled, and a worker keeps next to
// nothing: at full speed that would be every thousand events, for more than a third of
// its processor time (docs/BENCHMARKS.md). The collector counts what is held, so it
// lets the heap grow by as much first.
//
// It costs address space, and at most its size in memory that is collected later. A
// Builder holds it because Go does not clear what one grows by: memory that another
// Node held before would have to be brought back for that, page by page.
type headroom struct{ held strings.Builder }

const (
	headroomSize = 16 << 20
	// tightMemory is a GOMEMLIMIT that is not to be used up by it.
	tightMemory = 16 * headroomSize
)

// hold is called when the log goes on behind a page of the buckets that have read
// furthest.
func (h *headroom) hold() {
	if h.held.Cap() == 0 && debug.SetMemoryLimit(-1) >= tightMemory { // a negative one is not set
		h.held.Grow(headroomSize)
	}
}

func (h *headroom) release() { h.held.Reset() }
