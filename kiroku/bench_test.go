package kiroku_test

import (
	"fmt"
	"testing"

	"github.com/google/uuid"

	"github.com/suisha-go/suisha/kiroku"
)

func BenchmarkAppend(b *testing.B) {
	for _, n := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("events=%d", n), func(b *testing.B) {
			pool := store(b)
			batch := events(n)
			i := 0
			for b.Loop() {
				i++
				if _, err := kiroku.Append(b.Context(), pool, to(fmt.Sprintf("s-%d", i%100), kiroku.AnyVersion(), batch...)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

func BenchmarkReadKeysAndEvents(b *testing.B) {
	pool := store(b)
	const pages, page = 20, 1000
	for i := range pages {
		mustAppend(b, pool, fmt.Sprintf("s-%d", i), page)
	}
	ids := make([]uuid.UUID, 0, page)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		keys, err := kiroku.ReadKeys(b.Context(), pool, kiroku.Position(i%pages*page), page)
		if err != nil || len(keys) != page {
			b.Fatal(len(keys), err)
		}
		ids = ids[:0]
		for _, k := range keys {
			ids = append(ids, k.EventID)
		}
		if events, err := kiroku.ReadEvents(b.Context(), pool, ids); err != nil || len(events) != page {
			b.Fatal(len(events), err)
		}
		i++
	}
	b.ReportMetric(float64(page*b.N)/b.Elapsed().Seconds(), "events/s")
}
