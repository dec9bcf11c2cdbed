package shardpub

import (
	"testing"

	"github.com/suisha-go/suisha/kiroku"
)

// A log has more streams than a process may remember. Those that are asked for all
// the time stay.
func TestDirectoryKeepsNoMoreStreamsThanItMay(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 2, 7, 100} {
		d := newDirectory(limit)
		for id := range int64(1000) {
			d.put(&kiroku.Stream{ID: id})
			if n := len(d.streams) + len(d.old); n > max(limit, 2) {
				t.Fatalf("it may keep %d and keeps %d", limit, n)
			}
			if limit > 2 && id > 0 && d.get(0) == nil {
				t.Fatalf("of %d it let go of one that is always asked for", limit)
			}
		}
	}
}
