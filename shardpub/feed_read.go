package shardpub

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/suisha-go/suisha/kiroku"
)

// page is a part of the log, ready to be queued.
type page struct {
	items []item
	end   kiroku.Position // every key up to here is in items, or is nobody's
	last  kiroku.Key      // the last key that was read
	keys  int
	more  bool // the log goes on
}

// item is one event for one bucket.
type item struct {
	bucket *bucket
	entry  *entry
}

// errTorn: a key was there and its stream or event was not, and the key still
// is. The page is read again.
var errTorn = errors.New("the log changed while it was read")

// readPage reads keys first, then the streams that are not known, then the
// events that somebody wants (P-27). Three statements at the most for a page
// whose events fit the byte budget.
func (f *feed) readPage(ctx context.Context, a ask[*bucket], routes []route, limit int) (page, error) {
	db := f.node.pool
	keys, err := kiroku.ReadKeys(ctx, db, a.After, limit)
	if err != nil {
		return page{}, err
	}
	p := bound(keys, a.After, a.Until, limit)
	keys = keys[:p.keys]
	streams, err := f.dir.resolve(ctx, db, keys)
	if err != nil {
		return page{}, err
	}
	below := a.After
	for i, k := range keys {
		s, known := streams[k.StreamID]
		if !known {
			if err := f.gone(ctx, k); err != nil {
				return page{}, err
			}
		}
		for _, r := range routes {
			if b := r.bucketOf(s, known); b != nil {
				e := &entry{event: kiroku.RecordedEvent{Position: k.Position, StreamID: k.StreamID, Version: k.Version, ID: k.EventID}, stream: s.Name, below: below}
				p.items = append(p.items, item{b, e})
			}
		}
		below = keys[i].Position
	}
	return f.readEvents(ctx, p)
}

// bound cuts keys at the next group's cursor and says how far the page reaches.
func bound(keys []kiroku.Key, after, until kiroku.Position, limit int) page {
	n := len(keys)
	p := page{end: after, more: n == limit}
	if until != 0 {
		for n > 0 && keys[n-1].Position > until {
			n--
		}
		if n < len(keys) || !p.more {
			p.end, p.more = until, true
		}
	}
	p.keys = n
	if n > 0 {
		p.last = keys[n-1]
		p.end = max(p.end, p.last.Position)
	}
	return p
}

// readEvents fetches the events of a page, in chunks, and cuts the page short
// once it has brought as many bytes as may wait in memory.
func (f *feed) readEvents(ctx context.Context, p page) (page, error) {
	budget, spent := f.node.byteBudget(), 0
	chunk := firstChunk
	for from := 0; from < len(p.items); {
		to := whole(p.items, min(from+chunk, len(p.items)))
		events, err := kiroku.ReadEvents(ctx, f.node.pool, idsOf(p.items[from:to]))
		if err != nil {
			return page{}, err
		}
		kept := p.items[:from]
		for _, it := range p.items[from:to] {
			ev, ok := events[it.entry.event.ID]
			if !ok {
				if err := f.gone(ctx, kiroku.Key{Position: it.entry.event.Position, EventID: it.entry.event.ID}); err != nil {
					return page{}, err
				}
				continue
			}
			it.entry.fill(ev)
			spent += it.entry.size
			kept = append(kept, it)
		}
		done := to == len(p.items)
		p.items = append(kept, p.items[to:]...)
		from = len(kept)
		if spent >= budget && !done {
			return p.cut(from), nil
		}
		chunk = min(max((budget-spent)*max(from, 1)/max(spent, 1), 1), maxChunk)
	}
	return p, nil
}

// whole moves an end of a chunk behind all items of the event before it.
func whole(items []item, to int) int {
	for to < len(items) && items[to].entry.event.Position == items[to-1].entry.event.Position {
		to++
	}
	return to
}

// cut ends the page before its item n.
func (p page) cut(n int) page {
	p.end, p.more, p.last = p.items[n].entry.below, true, kiroku.Key{}
	p.items = p.items[:n]
	return p
}

// entryOverhead is what an event costs in memory beside its bytes, roughly.
const entryOverhead = 400

func (e *entry) fill(ev kiroku.RecordedEvent) {
	ev.Position, ev.StreamID, ev.Version = e.event.Position, e.event.StreamID, e.event.Version
	e.event = ev
	e.size = len(ev.Data) + len(ev.Metadata) + entryOverhead
}

func idsOf(items []item) []uuid.UUID {
	ids := make([]uuid.UUID, 0, len(items))
	for _, it := range items {
		if n := len(ids); n == 0 || ids[n-1] != it.entry.event.ID {
			ids = append(ids, it.entry.event.ID)
		}
	}
	return ids
}

// gone returns nil when the key is no longer in the log: a hard delete. Anything
// else that is missing is an error, never a skip (P-27).
func (f *feed) gone(ctx context.Context, k kiroku.Key) error {
	now, found, err := kiroku.KeyAt(ctx, f.node.pool, k.Position)
	if err != nil {
		return err
	}
	if found && now.EventID == k.EventID {
		return fmt.Errorf("%w: event %s at position %d", errTorn, k.EventID, k.Position)
	}
	return nil
}

// route finds the bucket of a stream within one subscription.
type route struct {
	topic   string
	shards  int
	buckets []*bucket
}

func routesOf(a ask[*bucket]) []route {
	bySub := map[*subscription]int{}
	var routes []route
	for b := range a.Sinks {
		i, ok := bySub[b.sub]
		if !ok {
			i = len(routes)
			bySub[b.sub] = i
			routes = append(routes, route{b.sub.topic, b.sub.cfg.Shards, make([]*bucket, b.sub.cfg.Shards)})
		}
		routes[i].buckets[b.number] = b
	}
	return routes
}

func (r route) bucketOf(s kiroku.Stream, known bool) *bucket {
	if !known || r.topic != AllStreams && r.topic != s.Category {
		return nil
	}
	return r.buckets[s.Bucket(r.shards)]
}
