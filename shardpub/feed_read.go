package shardpub

import (
	"cmp"
	"context"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/suisha-go/suisha/kiroku"
)

// page is a part of the log, ready to be queued.
type page struct {
	items []item
	end   kiroku.Position // every key up to here is in items, or is nobody's
	keys  []kiroku.Key    // those that were read
	more  bool            // the log goes on

	sparse bool // keys of other categories were left out
}

// upTo counts the keys up to a position.
func (p page) upTo(end kiroku.Position) int {
	i, found := slices.BinarySearchFunc(p.keys, end, func(k kiroku.Key, at kiroku.Position) int { return cmp.Compare(k.Position, at) })
	if found {
		i++
	}
	return i
}

// eventAt finds what stands at a place that was read.
func (p page) eventAt(at kiroku.Position) (uuid.UUID, bool) {
	i := p.upTo(at)
	if i == 0 || p.keys[i-1].Position != at {
		return uuid.Nil, false
	}
	return p.keys[i-1].EventID, true
}

// item is one event for one bucket.
type item struct {
	bucket *bucket
	entry  *entry
}

// readPage reads keys first, then the streams that are not known, then the
// events that somebody wants (P-27): three statements at the most for a page
// whose events fit one chunk. All are of one connection, so of one log.
func (f *feed) readPage(ctx context.Context, r reading) (p page, err error) {
	acquire, cancel := context.WithTimeout(ctx, f.patience)
	conn, err := f.node.pool.Acquire(acquire)
	cancel()
	if err != nil {
		return page{}, err
	}
	defer conn.Release()
	db := patient{conn, f.patience}
	if p, err = f.readKeys(ctx, conn.Conn(), db, r); err != nil {
		return page{}, err
	}
	streams, err := r.dir.resolve(ctx, db, p.keys)
	if err != nil {
		return page{}, err
	}
	below := r.ask.After
	var room []entry
	for i, k := range p.keys {
		s := streams[i]
		if s == nil {
			if err := db.gone(ctx, k.Position, k.EventID); err != nil {
				return page{}, err
			}
			below = k.Position
			continue
		}
		for _, route := range r.routes {
			b := route.bucketOf(s)
			if b == nil {
				continue
			}
			if len(room) == 0 {
				room = make([]entry, min(entryRoom, len(p.keys)-i))
			}
			room[0] = entry{event: kiroku.RecordedEvent{Position: k.Position, StreamID: k.StreamID, Version: k.Version, ID: k.EventID}, stream: s.Name, below: below}
			p.items = append(p.items, item{b, &room[0]})
			room = room[1:]
		}
		below = k.Position
	}
	return f.readEvents(ctx, db, r.events, p)
}

// entryRoom is how many entries share a piece of memory: one that stays keeps at most
// so many from being freed.
const entryRoom = 32

// readKeys reads the keys of a page.
func (f *feed) readKeys(ctx context.Context, conn *pgx.Conn, db patient, r reading) (page, error) {
	a := r.ask
	if len(r.categories) > 0 {
		some, few, err := db.readKeysOf(ctx, r.categories, a.After, r.limit)
		if err != nil {
			return page{}, err
		}
		if few {
			keys, err := f.behind(ctx, conn, r, some.Keys)
			return boundSparse(keys, some, a.After, a.Until), err
		}
	}
	keys, err := db.readKeys(ctx, a.After, r.limit+1) // the one at the cursor, too
	if err != nil {
		return page{}, err
	}
	keys, err = f.behind(ctx, conn, r, keys)
	return bound(keys, a.After, a.Until, r.limit), err
}

// behind looks at the key at the cursor and returns those behind it. Another one
// than before, or none any more, has the log examined: it can change behind a
// connection that stays, as one of a pooler. What is read then comes to nothing.
func (f *feed) behind(ctx context.Context, conn *pgx.Conn, r reading, keys []kiroku.Key) ([]kiroku.Key, error) {
	var stands uuid.UUID
	if len(keys) > 0 && keys[0].Position == r.ask.After {
		stands, keys = keys[0].EventID, keys[1:]
	}
	if r.at == uuid.Nil || r.at == stands {
		return keys, nil
	}
	changed, err := f.node.recognize(ctx, conn)
	if err == nil && !changed {
		f.forgetAnchor(r.ask.After)
	}
	return keys, err
}

// bound cuts keys at the next group's cursor and says how far the page reaches.
func bound(keys []kiroku.Key, after, until kiroku.Position, limit int) page {
	n := len(keys)
	p := page{end: after, more: n >= limit}
	if until != 0 {
		for n > 0 && keys[n-1].Position > until {
			n--
		}
		if n < len(keys) || !p.more {
			p.end, p.more = until, true
		}
	}
	p.keys = keys[:n]
	if n > 0 {
		p.end = max(p.end, keys[n-1].Position)
	}
	return p
}

// boundSparse is bound for keys that were read by streams.
func boundSparse(keys []kiroku.Key, of kiroku.KeysOf, after, until kiroku.Position) page {
	p := page{keys: keys, end: max(of.End, after), more: of.More, sparse: true}
	if until != 0 && p.end >= until {
		p.keys = keys[:p.upTo(until)]
		p.end, p.more = until, true
	}
	return p
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

func (r route) bucketOf(s *kiroku.Stream) *bucket {
	if r.topic != AllStreams && r.topic != s.Category {
		return nil
	}
	return r.buckets[s.Bucket(r.shards)]
}
