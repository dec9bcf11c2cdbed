package orders_test

import (
	"testing"

	"github.com/suisha-go/suisha/examples/gitchurn/internal/orders"
)

func TestLinesOfAnOrderComeInTurnAndAsManyAsCounted(t *testing.T) {
	t.Parallel()
	const n = 1000
	seen, total := map[int]int{}, 0
	for l := range orders.Lines(n) {
		if l.Number != seen[l.Order]+1 || l.Amount < 100 || l.Amount > 999 {
			t.Fatalf("got %+v after line %d", l, seen[l.Order])
		}
		seen[l.Order]++
		total++
	}
	if len(seen) != n || total != orders.Count(n) || orders.For(total) != n {
		t.Errorf("%d orders with %d lines; counted %d, for %d", len(seen), total, orders.Count(n), orders.For(total))
	}
}
