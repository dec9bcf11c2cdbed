package shardpub

import (
	"context"

	"github.com/google/uuid"

	"github.com/suisha-go/suisha/kiroku"
)

// The events of a page are read at once, as many as are of about so many bytes,
// judged by the events before.
const (
	pageBytes  = 2 << 20
	pageEvents = 2000
	firstSize  = 32 << 10
)

// eventsIn is how many events are about so many bytes.
func (f *feed) eventsIn(bytes int) int {
	return min(max(min(bytes, pageBytes)/f.size, 1), pageEvents)
}

// readEvents fetches the events of a page, which ends where they would be too many.
func (f *feed) readEvents(ctx context.Context, db patient, most int, p page) (page, error) {
	if to := whole(p.items, min(most, len(p.items))); to < len(p.items) {
		p = p.cut(to)
	}
	if len(p.items) == 0 {
		return p, nil
	}
	kept, err := fetch(ctx, db, p.items)
	if err != nil {
		f.size = min(2*f.size, pageBytes) // they may have been too many to arrive in time
		return page{}, err
	}
	p.items = p.items[:kept]
	bytes := 0
	for _, it := range p.items {
		bytes += it.entry.size
	}
	f.learn(bytes, kept)
	return p, nil
}

// learn follows the size of events: up at once, down slowly, but for the first ones,
// that know more than a guess does.
func (f *feed) learn(bytes, events int) {
	if events == 0 {
		return
	}
	size := bytes / events
	if f.size == firstSize {
		f.size = 2 * size
	}
	f.size = max(size, (3*f.size+size)/4)
}

// fetch fills items with their events and returns how many there are left: those
// that were deleted meanwhile leave.
func fetch(ctx context.Context, db patient, items []item) (kept int, err error) {
	events, err := db.readEvents(ctx, idsOf(items))
	if err != nil {
		return 0, err
	}
	found := finder{events: events}
	for _, it := range items {
		event := found.find(it.entry.event.ID)
		if event == nil {
			if err := db.gone(ctx, it.entry.event.Position, it.entry.event.ID); err != nil {
				return 0, err
			}
			continue
		}
		it.entry.fill(event)
		items[kept] = it
		kept++
	}
	return kept, nil
}

// finder finds events by id. They come in no promised order, but mostly in that of
// the ids they were asked for by.
type finder struct {
	events []kiroku.RecordedEvent
	at     int               // where the last one was found
	byID   map[uuid.UUID]int // made when it is needed
}

// find returns nil where there is none.
func (f *finder) find(id uuid.UUID) *kiroku.RecordedEvent {
	for at := f.at; at < min(f.at+2, len(f.events)); at++ {
		if f.events[at].ID == id {
			f.at = at
			return &f.events[at]
		}
	}
	if f.byID == nil {
		f.byID = make(map[uuid.UUID]int, len(f.events))
		for i := range f.events {
			f.byID[f.events[i].ID] = i
		}
	}
	at, ok := f.byID[id]
	if !ok {
		return nil
	}
	f.at = at
	return &f.events[at]
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
