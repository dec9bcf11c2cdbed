// Package orders makes up events for a demo whose repository has too few
// commits to keep three workers busy.
package orders

import (
	"iter"
	"strconv"
)

// Line is one event: a line added to an order.
type Line struct {
	Order, Number int
	Amount        int64
}

// Key is the part of the stream's name that stands for an order.
func Key(order int) string { return strconv.Itoa(order) }

// For is the number of orders that make about so many events.
func For(events int) int { return max(events, 0) / meanLines }

const meanLines = 5

// Count is how many events n orders have.
func Count(n int) int {
	total := 0
	for k := 1; k <= n; k++ {
		total += lines(k)
	}
	return total
}

// Lines returns the events of orders 1 to n, line by line across all orders, so
// that no order's events stand together.
func Lines(n int) iter.Seq[Line] {
	return func(yield func(Line) bool) {
		for i := 1; i <= mostLines; i++ {
			for k := 1; k <= n; k++ {
				if i <= lines(k) && !yield(Line{Order: k, Number: i, Amount: amount(k, i)}) {
					return
				}
			}
		}
	}
}

const mostLines = 7

// lines is 3 to 7, in turn.
func lines(order int) int { return 3 + order%5 }

func amount(order, line int) int64 { return int64(100 + (37*order+11*line)%900) }
