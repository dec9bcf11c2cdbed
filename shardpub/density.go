package shardpub

// Keys in a page. They are small, so a page has many; events are large, so a page may
// end before its keys do (feed_events.go).
const (
	minPageKeys   = 100
	maxPageKeys   = 5000
	otherPageKeys = 2000 // for buckets that are behind others, which wait meanwhile
	firstPageKeys = 500  // for a bucket that is new and waits for its first event
)

// density is the share of the keys of the log whose streams are read here, as it
// was lately: what all buckets of the subscriptions would have wanted together.
type density float64

// firstDensity is a guess; a page of some length for many buckets knows better.
const firstDensity density = 1

// minDensity keeps a long stretch without events of ours from being remembered for
// more than a few pages.
const minDensity = 0.001

// limit is how many keys bring every bucket of a page about a batch.
func (d density) limit(a ask[*bucket]) int {
	keys := 0
	for b := range a.Sinks {
		keys = max(keys, b.sub.cfg.BatchSize*b.sub.cfg.Shards)
	}
	return int(min(max(float64(keys)/float64(d), minPageKeys), maxPageKeys))
}

// learned takes in a page: a bucket stands for its part of its subscription.
func (d density) learned(a ask[*bucket], p page) density {
	keys, part := p.upTo(p.end), 0.0
	if p.sparse {
		keys = int(p.end - a.After) // about as many as there are places
	}
	for b := range a.Sinks {
		part += 1 / float64(b.sub.cfg.Shards)
	}
	if keys == 0 || part == 0 {
		return d
	}
	now := density(float64(len(p.items)) / float64(keys) / part)
	if d == firstDensity && keys >= minPageKeys && part >= 0.5 {
		return max(now, minDensity)
	}
	return max(0.7*d+0.3*now, minDensity)
}
