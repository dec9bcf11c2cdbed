package shardpub

import (
	"context"

	"github.com/suisha-go/suisha/kiroku"
)

// directory remembers which stream an id stands for. It holds facts only:
// names and hashes never change, absence is never remembered, and who owns what
// is not in it (P-27). Only the feed uses it; it is not safe for concurrent use.
type directory struct {
	limit   int
	streams map[int64]kiroku.Stream
	old     map[int64]kiroku.Stream // the generation before: what is not asked for leaves with it
}

func newDirectory(limit int) *directory {
	return &directory{limit: limit, streams: map[int64]kiroku.Stream{}}
}

func (d *directory) get(id int64) (kiroku.Stream, bool) {
	if s, ok := d.streams[id]; ok {
		return s, true
	}
	s, ok := d.old[id]
	if ok {
		d.put(s)
	}
	return s, ok
}

func (d *directory) put(s kiroku.Stream) {
	if len(d.streams) >= max(d.limit/2, 1) {
		d.old, d.streams = d.streams, map[int64]kiroku.Stream{}
	}
	d.streams[s.ID] = s
}

// resolve returns the streams of all keys that exist. A page may name more
// streams than the directory keeps, so the answer is a map of its own.
func (d *directory) resolve(ctx context.Context, db patient, keys []kiroku.Key) (map[int64]kiroku.Stream, error) {
	known := make(map[int64]kiroku.Stream, len(keys))
	var missing []int64
	asked := map[int64]bool{}
	for _, k := range keys {
		if _, ok := known[k.StreamID]; ok || asked[k.StreamID] {
			continue
		}
		if s, ok := d.get(k.StreamID); ok {
			known[k.StreamID] = s
			continue
		}
		asked[k.StreamID] = true
		missing = append(missing, k.StreamID)
	}
	if len(missing) == 0 {
		return known, nil
	}
	found, err := db.lookupStreams(ctx, missing)
	if err != nil {
		return nil, err
	}
	for _, s := range found {
		d.put(s)
		known[s.ID] = s
	}
	return known, nil
}
