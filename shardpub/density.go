package shardpub

// Keys in a page. They are small, so a page may have more of them than of events: few
// buckets want few of them, and read on faster than those that they are behind.
const (
	minPageKeys   = 100
	maxPageKeys   = 5000
	firstPageKeys = 500 // for a bucket that is new and waits for its first event
)

// nearPlaces is how far apart buckets may have read that begin together: further ones
// would wait for pages that have nothing for them.
const nearPlaces = 2 * firstPageKeys

// firstLimit is how many keys a first page has: for each bucket, wherever it begins, as
// many as for one alone.
func firstLimit(a ask[*bucket]) int { return firstPageKeys + int(a.spread()) }

// span is what the buckets of a page are together.
type span struct {
	batch int     // keys that bring each of them about a batch, if all are wanted
	part  float64 // of what their subscriptions read
	bytes int     // that they may hold
}

func spanOf(a ask[*bucket]) (s span) {
	for b := range a.Sinks {
		s.batch = max(s.batch, b.sub.cfg.BatchSize*b.sub.cfg.Shards)
		s.part += 1 / float64(b.sub.cfg.Shards)
		s.bytes += b.sub.byteShare()
	}
	if a.Until != 0 { // to meet the others they have to be faster
		s.batch *= 2
	}
	return s
}

// density is the share of the keys of the log whose streams are read here, as it
// was lately: what all buckets of the subscriptions would have wanted together.
type density float64

// firstDensity is a guess; a page of some length for many buckets knows better.
const firstDensity density = 1

// minDensity keeps a long stretch without events of ours from being remembered for
// more than a few pages.
const minDensity = 0.001

// limit is how many keys bring every bucket of a page about a batch, and no more
// events than are read at once.
func (d density) limit(s span, events int) int {
	keys := float64(s.batch) / float64(d)
	if s.part > 0 {
		keys = min(keys, float64(events)/float64(d)/s.part)
	}
	return int(min(max(keys, minPageKeys), maxPageKeys))
}

// learned takes in a page: a bucket stands for its part of its subscription.
func (d density) learned(r reading, p page) density {
	keys := p.upTo(p.end)
	if p.sparse {
		keys = int(p.end - r.ask.After) // about as many as there are places
	}
	if keys == 0 || r.span.part == 0 {
		return d
	}
	now := density(float64(len(p.items)) / float64(keys) / r.span.part)
	now = min(now, density(len(r.routes))) // buckets that are behind have more events than others
	if d == firstDensity && keys >= minPageKeys && r.span.part >= 0.5 {
		return max(now, minDensity)
	}
	return max(0.7*d+0.3*now, minDensity)
}
