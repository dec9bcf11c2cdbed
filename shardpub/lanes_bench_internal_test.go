package shardpub

import (
	"fmt"
	"testing"

	"github.com/suisha-go/suisha/kiroku"
)

// One event on its way through a bucket: queued, handed out, settled, the
// checkpoint asked for.
func BenchmarkLanes(b *testing.B) {
	for _, width := range []int{1, 4, 64} {
		b.Run(fmt.Sprintf("width=%d", width), func(b *testing.B) {
			const streams, window = 100, 256
			l := newLanes(width, 0, acks{})
			position := kiroku.Position(0)
			push := func() {
				position++
				l.push(&entry{event: kiroku.RecordedEvent{StreamID: int64(position % streams), Position: position}, below: position - 1, size: 200})
			}
			for range window {
				push()
			}
			b.ReportAllocs()
			for b.Loop() {
				push()
				e, ok := l.next()
				if !ok {
					b.Fatal("nothing can go out")
				}
				l.settle(e, 0)
				l.mark()
			}
		})
	}
}
