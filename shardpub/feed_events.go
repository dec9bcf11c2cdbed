package shardpub

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/suisha-go/suisha/kiroku"
)

// Events come in chunks: of about so many bytes, judged by the events before.
const (
	chunkBytes = 1 << 20
	maxChunk   = maxPageKeys
	firstSize  = 32 << 10
)

// readEvents fetches the events of a page, and cuts the page short once it has
// brought as many bytes as may wait in memory, in all or for one bucket.
func (f *feed) readEvents(ctx context.Context, db patient, p page) (page, error) {
	budget, spent := f.node.byteBudget(), 0
	each := map[*bucket]int{}
	for from := 0; from < len(p.items); {
		to := whole(p.items, min(from+f.chunk(budget), len(p.items)))
		kept, err := fetch(ctx, db, p.items[from:to])
		if err != nil {
			return page{}, err
		}
		p.items = slices.Delete(p.items, from+kept, to)
		full, bytes := false, 0
		for _, it := range p.items[from : from+kept] {
			bytes += it.entry.size
			each[it.bucket] += it.entry.size
			full = full || each[it.bucket] > it.bucket.sub.byteShare()
		}
		f.learn(bytes, kept)
		spent += bytes
		from += kept
		if (full || spent >= budget) && from < len(p.items) {
			return p.cut(from), nil
		}
	}
	return p, nil
}

// chunk is how many events are fetched at once.
func (f *feed) chunk(budget int) int {
	return min(max(min(chunkBytes, budget)/f.size, 1), maxChunk)
}

// learn follows the size of events: up at once, down slowly.
func (f *feed) learn(bytes, events int) {
	if events > 0 {
		size := bytes / events
		f.size = max(size, (3*f.size+size)/4)
	}
}

// fetch fills items with their events and returns how many there are left: those
// that were deleted meanwhile leave.
func fetch(ctx context.Context, db patient, items []item) (kept int, err error) {
	events, err := db.readEvents(ctx, idsOf(items))
	if err != nil {
		return 0, err
	}
	found := make(map[uuid.UUID]int, len(events))
	for i := range events {
		found[events[i].ID] = i
	}
	for _, it := range items {
		i, ok := found[it.entry.event.ID]
		if !ok {
			if err := db.gone(ctx, it.entry.event.Position, it.entry.event.ID); err != nil {
				return 0, err
			}
			continue
		}
		it.entry.fill(&events[i])
		items[kept] = it
		kept++
	}
	return kept, nil
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
	p.end, p.more = p.items[n].entry.below, true
	p.items = p.items[:n]
	return p
}

// entryOverhead is what an event costs in memory beside its bytes, roughly.
const entryOverhead = 400

func (e *entry) fill(ev *kiroku.RecordedEvent) {
	position, stream, version := e.event.Position, e.event.StreamID, e.event.Version
	e.event = *ev
	e.event.Position, e.event.StreamID, e.event.Version = position, stream, version
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
