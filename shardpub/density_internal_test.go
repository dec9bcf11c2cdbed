package shardpub

import (
	"testing"

	"github.com/suisha-go/suisha/kiroku"
)

// A bucket that comes alone reads as far at once as all buckets together do: its
// events are as far apart as there are buckets.
func TestPagesOfFewBucketsAreAsLongAsThoseOfAll(t *testing.T) {
	t.Parallel()
	sub := &subscription{cfg: &SubscriberConfig{Shards: 64, BatchSize: 20}}
	of := func(n int) ask[*bucket] {
		a := ask[*bucket]{Sinks: map[*bucket]kiroku.Position{}}
		for i := range n {
			a.Sinks[&bucket{sub: sub, number: i}] = 0
		}
		return a
	}
	d := density(1)
	for _, n := range []int{1, 16, 64} {
		if got := d.limit(of(n)); got != 64*20 {
			t.Errorf("%d buckets read %d keys, want %d", n, got, 64*20)
		}
	}
	brought := func(keys, items int) page {
		p := page{items: make([]item, items)}
		for i := range keys {
			p.keys = append(p.keys, kiroku.Key{Position: kiroku.Position(i + 1)})
		}
		p.end = kiroku.Position(keys)
		return p
	}
	if got := d.learned(of(64), brought(640, 64)); got != 0.1 {
		t.Errorf("the first page made it %v, want 0.1", got)
	}
	for range 30 { // half of the log is of another category
		d = d.learned(of(16), brought(640, 80))
	}
	if d < 0.499 || d > 0.501 {
		t.Errorf("density %v, want 0.5", d)
	}
	if got := d.limit(of(1)); got < 2*64*20-10 || got > 2*64*20+10 {
		t.Errorf("reads %d keys, want twice as many", got)
	}
	if got := d.learned(of(0), brought(5, 0)); got != d {
		t.Errorf("a page for nobody made it %v", got)
	}
	if got := d.learned(of(1), page{}); got != d {
		t.Errorf("an empty page made it %v", got)
	}
	for range 100 {
		d = d.learned(of(64), brought(640, 0))
	}
	if got := d.limit(of(1)); d != minDensity || got != maxPageKeys {
		t.Errorf("after a long stretch of others: density %v, %d keys", d, got)
	}
}
