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
	streams map[int64]*kiroku.Stream
	old     map[int64]*kiroku.Stream // the generation before: what is not asked for leaves with it
}

func newDirectory(limit int) *directory {
	return &directory{limit: limit, streams: map[int64]*kiroku.Stream{}}
}

// get returns nil for a stream that is not known.
func (d *directory) get(id int64) *kiroku.Stream {
	if s := d.streams[id]; s != nil {
		return s
	}
	s := d.old[id]
	if s != nil {
		d.put(s)
	}
	return s
}

func (d *directory) put(s *kiroku.Stream) {
	if len(d.streams) >= max(d.limit/2, 1) {
		d.old, d.streams = d.streams, map[int64]*kiroku.Stream{}
	}
	d.streams[s.ID] = s
}

// resolve returns the stream of each key, nil where there is none. A page may name
// more streams than the directory keeps.
func (d *directory) resolve(ctx context.Context, db patient, keys []kiroku.Key) ([]*kiroku.Stream, error) {
	streams := make([]*kiroku.Stream, len(keys))
	asked := map[int64]*kiroku.Stream{}
	var missing []int64
	for i, k := range keys {
		if streams[i] = d.get(k.StreamID); streams[i] != nil {
			continue
		}
		if _, ok := asked[k.StreamID]; !ok {
			asked[k.StreamID] = nil
			missing = append(missing, k.StreamID)
		}
	}
	if len(missing) == 0 {
		return streams, nil
	}
	found, err := db.lookupStreams(ctx, missing)
	if err != nil {
		return nil, err
	}
	for _, s := range found { // each by itself: one that stays keeps no others
		d.put(&s)
		asked[s.ID] = &s
	}
	for i, k := range keys {
		if streams[i] == nil {
			streams[i] = asked[k.StreamID]
		}
	}
	return streams, nil
}
