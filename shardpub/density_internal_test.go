package shardpub

import (
	"testing"

	"github.com/suisha-go/suisha/kiroku"
)

func asked(sub *subscription, buckets int) ask[*bucket] {
	a := ask[*bucket]{Sinks: map[*bucket]kiroku.Position{}}
	for i := range buckets {
		a.Sinks[&bucket{sub: sub, number: i}] = 0
	}
	return a
}

// Keys behind the last event that is read would be read again.
func TestPagesReadNoMoreKeysThanTheirEventsHave(t *testing.T) {
	t.Parallel()
	wide := spanOf(asked(&subscription{cfg: &SubscriberConfig{Shards: 1024, BatchSize: 100}}, 1024))
	for _, c := range []struct {
		density density
		events  int
		want    int
	}{{1, 2000, 2000}, {0.5, 2000, 4000}, {1, 200, 200}, {0.01, 2000, maxPageKeys}, {1, 1, minPageKeys}} {
		if got := c.density.limit(wide, c.events); got != c.want {
			t.Errorf("%d events at %v: %d keys, want %d", c.events, c.density, got, c.want)
		}
	}
}

// Buckets that were too full for a page would never meet the others again if they
// read on as they do, or slower.
func TestFewBucketsReadOnFasterThanAll(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{16, 64, 1024} {
		sub := &subscription{cfg: &SubscriberConfig{Shards: shards, BatchSize: 100}}
		behind := asked(sub, shards/16)
		behind.Until = 100_000
		all, few := density(1).limit(spanOf(asked(sub, shards)), pageEvents), density(1).limit(spanOf(behind), pageEvents)
		if few < 2*all {
			t.Errorf("%d of %d buckets read %d keys, all of them %d", shards/16, shards, few, all)
		}
	}
}

// A bucket that comes alone reads as far at once as all buckets together do: its
// events are as far apart as there are buckets.
func TestPagesOfFewBucketsAreAsLongAsThoseOfAll(t *testing.T) {
	t.Parallel()
	sub := &subscription{cfg: &SubscriberConfig{Shards: 64, BatchSize: 20}}
	of := func(n int) reading { return reading{span: spanOf(asked(sub, n)), routes: make([]route, 1)} }
	d := density(1)
	for _, n := range []int{1, 16, 64} {
		if got := d.limit(of(n).span, pageEvents); got != 64*20 {
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
	if got := d.limit(of(1).span, pageEvents); got < 2*64*20-10 || got > 2*64*20+10 {
		t.Errorf("reads %d keys, want twice as many", got)
	}
	if got := d.learned(of(0), brought(5, 0)); got != d {
		t.Errorf("a page for nobody made it %v", got)
	}
	if got := d.learned(of(1), page{}); got != d {
		t.Errorf("an empty page made it %v", got)
	}
	if got := density(1).learned(of(1), brought(640, 300)); got > 1 {
		t.Errorf("a bucket of many events made it %v, more than there are", got)
	}
	for range 100 {
		d = d.learned(of(64), brought(640, 0))
	}
	if got := d.limit(of(1).span, pageEvents); d != minDensity || got != maxPageKeys {
		t.Errorf("after a long stretch of others: density %v, %d keys", d, got)
	}
}

// Buckets that come together begin at different places, and each waits for its first
// event: the first page is as long behind the last of them as behind the first.
func TestFirstPageReachesAllWhoBeginWithIt(t *testing.T) {
	t.Parallel()
	sub := &subscription{cfg: &SubscriberConfig{Shards: 64, BatchSize: 100}}
	a := asked(sub, 3)
	a.After = 1000
	far := kiroku.Position(0)
	for b := range a.Sinks {
		a.Sinks[b] = a.After + far
		far += 400
	}
	if got, want := firstLimit(a), firstPageKeys+800; got != want {
		t.Errorf("reads %d keys, want %d", got, want)
	}
}
