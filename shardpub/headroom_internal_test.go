package shardpub

import (
	"runtime"
	"testing"
)

// The collector must wait until the heap has grown by as much, or it is for nothing.
func TestHeadroomIsMemoryThatTheCollectorCounts(t *testing.T) { //nolint:paralleltest // it reads what the whole process allocates
	var h headroom
	h.hold()
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	if m.NextGC < 2*headroomSize {
		t.Errorf("the next collection is due at %d bytes, want %d at least", m.NextGC, 2*headroomSize)
	}
	runtime.KeepAlive(&h)
}
