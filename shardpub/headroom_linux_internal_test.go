package shardpub

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"testing"
)

// Also where it is memory that was used before and went back to the system.
func TestHeadroomIsNeverTouched(t *testing.T) { //nolint:paralleltest // it reads what the whole process holds
	used := make([]byte, headroomSize)
	for i := range used {
		used[i] = 1
	}
	runtime.KeepAlive(used)
	debug.FreeOSMemory()
	before := residentBytes(t)
	var h headroom
	h.hold()
	if h.held.Cap() < headroomSize {
		t.Fatalf("it holds %d bytes", h.held.Cap())
	}
	if more := residentBytes(t) - before; more > headroomSize/2 {
		t.Errorf("it made %d bytes resident, want next to none", more)
	}
	runtime.KeepAlive(&h)
}

func residentBytes(t *testing.T) int {
	t.Helper()
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var size, resident int
	if _, err := fmt.Sscan(string(statm), &size, &resident); err != nil {
		t.Fatal(err)
	}
	return resident * os.Getpagesize()
}
