package shardpub

import "slices"

// Where few of the keys in the log are of categories that are read here, reading it
// from end to end is mostly reading what nobody wants. Then, far from the end, the
// keys are asked for stream by stream.
const (
	sparseDensity = 0.05 // of the keys; below it a probe per stream pays
	sparseStreams = 2000 // of all categories read here; beyond it, it does not
	sparseRest    = 50   // pages read the other way after one that did not pay
)

// sparse decides which way a page is read. The zero value is ready.
type sparse struct {
	far  bool // the log went on behind the page before
	rest int
}

// way returns the categories to ask for, none where the log is read as it is.
func (s *sparse) way(d density, routes []route) []string {
	if d >= sparseDensity || !s.far {
		return nil
	}
	if s.rest > 0 {
		s.rest--
		return nil
	}
	var categories []string
	for _, r := range routes {
		if r.topic == AllStreams {
			return nil
		}
		categories = append(categories, r.topic)
	}
	slices.Sort(categories)
	return slices.Compact(categories)
}

// learned takes in a page. One that was read by streams and brought little, because
// there are too many of them or one has nearly everything, did not pay. One that ends
// where other buckets are says nothing.
func (s *sparse) learned(r reading, p page) {
	s.far = p.more
	asked := len(r.categories) > 0
	if asked && (!p.sparse || p.more && (r.ask.Until == 0 || p.end < r.ask.Until) && len(p.keys) < r.limit/10) {
		s.rest = sparseRest
	}
}
