package shardpub

import (
	"fmt"
	"testing"

	"github.com/suisha-go/suisha/kiroku"
)

// manyAcks are every 64th position, as of 64 buckets.
func manyAcks(n int) acks {
	a := acks{last: eventX}
	for i := range n {
		a.at = append(a.at, kiroku.Position(1<<30+64*i))
	}
	return a
}

// Both are done per bucket: encoding by every flush, decoding when it is opened.
func BenchmarkAcks(b *testing.B) {
	for _, n := range []int{0, 20, 200, 4000} {
		a := manyAcks(n)
		text := a.encode()
		b.Run(fmt.Sprintf("encode/n=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				a.encode()
			}
		})
		b.Run(fmt.Sprintf("decode/n=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := decodeAcks(text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// What a flush asks a bucket whose oldest event is slow, while n others are settled.
func BenchmarkSettledAhead(b *testing.B) {
	for _, n := range []int{0, 20, 200, 4000} {
		b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
			l := newLanes(2, 0, acks{})
			for i := range n + 1 {
				at := kiroku.Position(i + 1)
				l.push(&entry{event: kiroku.RecordedEvent{ID: eventX, StreamID: int64(at), Position: at}, below: at - 1, size: 200})
			}
			l.next() // the slow one
			for range n {
				e, ok := l.next()
				if !ok {
					b.Fatal("nothing can go out")
				}
				l.settle(e, 0)
			}
			b.ReportAllocs()
			for b.Loop() {
				if a := l.settledAhead(nil); len(a.at) != n {
					b.Fatalf("%d are settled, want %d", len(a.at), n)
				}
			}
		})
	}
}
