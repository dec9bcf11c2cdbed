package shardpub

import (
	"cmp"
	"maps"
	"slices"

	"github.com/suisha-go/suisha/kiroku"
)

// groups decides which part of the log is read next, and for whom. Sinks (the
// buckets of all subscriptions of a process) that have read equally far share a
// reading group and with it each page; those far behind, and those that were
// too full to take a page, read in groups of their own until they meet the next
// one (P-28, P-29). It is a plain value machine: no clock, no goroutine, no
// database.
//
// What holds between calls: a sink is in at most one group; it has read at
// least as far as its group's cursor; the groups' cursors ascend strictly.
type groups[S comparable] struct {
	all   []*group[S] // ascending by cursor
	near  kiroku.Position
	turn  uint64
	born  uint64                // of the latest group
	asked map[S]kiroku.Position // the sinks of the latest ask
}

type group[S comparable] struct {
	cursor kiroku.Position
	sinks  map[S]kiroku.Position // how far each has read: at least cursor
	turn   uint64                // when it was last asked for, 0 if never
	born   uint64                // which one it is: they are numbered
	fresh  bool                  // the log may go on after cursor; kept up for the last group only
}

// room says how much a sink can take.
type room struct {
	free int  // events
	idle bool // it has nothing left to hand out
	// fresh: nothing was read for it so far.
	fresh bool
}

// ask is one page to be read: the keys after After, up to and with Until unless
// that is zero, for the sinks that stood in the group when it was asked for.
// Parked are the full ones that were taken out of it. First: it is the first one for
// some sink, which waits for anything to do.
type ask[S comparable] struct {
	group  *group[S]
	After  kiroku.Position
	Until  kiroku.Position
	Sinks  map[S]kiroku.Position
	Parked map[S]kiroku.Position
	First  bool
}

// newGroups makes an empty set. Sinks added together start in one group when
// they are at most near apart.
func newGroups[S comparable](near kiroku.Position) *groups[S] { return &groups[S]{near: near} }

// add brings sinks in, each with how far it has read.
func (g *groups[S]) add(sinks map[S]kiroku.Position) {
	order := slices.SortedFunc(maps.Keys(sinks), func(a, b S) int { return cmp.Compare(sinks[a], sinks[b]) })
	var start *group[S] // the group being formed by this call
	for _, s := range order {
		read := sinks[s]
		switch at := g.at(read); {
		case at != nil:
			at.sinks[s] = read
		case start != nil && read-start.cursor <= g.near:
			start.sinks[s] = read
		default:
			g.born++
			start = &group[S]{cursor: read, sinks: map[S]kiroku.Position{s: read}, fresh: true, born: g.born}
			g.insert(start)
		}
	}
}

// remove takes a sink out, wherever it is: it goes, or could take events up to a
// place in the middle of a page only. Then, like the parked of an ask, it comes
// back with add.
func (g *groups[S]) remove(s S) {
	delete(g.asked, s)
	last := g.last()
	g.all = slices.DeleteFunc(g.all, func(gr *group[S]) bool {
		delete(gr.sinks, s)
		return len(gr.sinks) == 0
	})
	if now := g.last(); now != nil && now != last {
		now.fresh = true // it was not the one that wakes reached
	}
}

// holds reports whether a page for the group is still wanted.
func (g *groups[S]) holds(gr *group[S]) bool { return slices.Contains(g.all, gr) }

// last is the group that has read furthest, nil without groups.
func (g *groups[S]) last() *group[S] {
	if len(g.all) == 0 {
		return nil
	}
	return g.all[len(g.all)-1]
}

// wake says that something may have been appended.
func (g *groups[S]) wake() {
	if last := g.last(); last != nil {
		last.fresh = true
	}
}

// next picks the page to read, fairly among the groups that can take one; new ones
// come first, in the order in which they came.
// Groups wait for their fullest sink, but not while another of theirs has run
// dry: then the full ones are parked, that is taken out and named in the ask.
// The caller brings a parked sink back, with add, once it has room.
func (g *groups[S]) next(of func(S) room) (ask[S], bool) {
	var best *group[S]
	bestIndex := 0
	for i, gr := range g.all {
		if i == len(g.all)-1 && !gr.fresh {
			continue
		}
		if gr.readable(of) && (best == nil || gr.before(best)) {
			best, bestIndex = gr, i
		}
	}
	if best == nil {
		return ask[S]{}, false
	}
	g.turn++
	best.turn = g.turn
	a := ask[S]{group: best, After: best.cursor, Parked: map[S]kiroku.Position{}}
	for s, read := range best.sinks {
		r := of(s)
		if r.free <= 0 {
			a.Parked[s] = read
			delete(best.sinks, s)
		}
		a.First = a.First || r.idle && r.fresh
	}
	if bestIndex+1 < len(g.all) {
		a.Until = g.all[bestIndex+1].cursor
	} else {
		best.fresh = false
	}
	a.Sinks = maps.Clone(best.sinks)
	g.asked = a.Sinks
	return a, true
}

// readable: no sink is full, or one is dry and can take something.
func (gr *group[S]) readable(of func(S) room) bool {
	full, dry := false, false
	for s := range gr.sinks {
		r := of(s)
		full = full || r.free <= 0
		dry = dry || r.idle && r.free > 0
	}
	return !full || dry
}

// before says which of two groups has waited longer.
func (gr *group[S]) before(o *group[S]) bool {
	return gr.turn < o.turn || gr.turn == o.turn && gr.born < o.born
}

// spread is how far the sink that has read furthest is ahead of the page's begin.
func (a ask[S]) spread() (far kiroku.Position) {
	for _, read := range a.Sinks {
		far = max(far, read-a.After)
	}
	return far
}

// applied records that the page was queued: all keys up to end were, for the
// sinks of the ask that are still in the group. more says that the log went on
// when it was read. Sinks that joined the group meanwhile stay where they were.
func (g *groups[S]) applied(a ask[S], end kiroku.Position, more bool) {
	gr := a.group
	if !g.holds(gr) {
		return
	}
	late := map[S]kiroku.Position{}
	for s, read := range gr.sinks {
		if _, asked := a.Sinks[s]; asked {
			gr.sinks[s] = max(read, end)
		} else {
			late[s] = read
			delete(gr.sinks, s)
		}
	}
	if last := g.last(); gr != last {
		gr.fresh = last.fresh // it may meet or pass the one that wakes reached
	}
	g.all = slices.DeleteFunc(g.all, func(o *group[S]) bool { return o == gr })
	if len(gr.sinks) > 0 {
		gr.cursor = max(gr.cursor, end)
		gr.fresh = gr.fresh || more && a.Until == 0
		g.insert(gr)
	}
	if len(late) > 0 {
		g.add(late)
	}
}

// failed records that the page could not be read: it is to be read again.
func (g *groups[S]) failed(a ask[S]) { a.group.fresh = true }

// at finds the group whose cursor is p.
func (g *groups[S]) at(p kiroku.Position) *group[S] {
	i, found := g.search(p)
	if !found {
		return nil
	}
	return g.all[i]
}

// insert places a group by its cursor, or unites it with the one that is there.
func (g *groups[S]) insert(gr *group[S]) {
	i, found := g.search(gr.cursor)
	if !found {
		g.all = slices.Insert(g.all, i, gr)
		return
	}
	maps.Copy(g.all[i].sinks, gr.sinks)
	g.all[i].fresh = g.all[i].fresh || gr.fresh
}

func (g *groups[S]) search(p kiroku.Position) (int, bool) {
	return slices.BinarySearchFunc(g.all, p, func(gr *group[S], p kiroku.Position) int {
		return cmp.Compare(gr.cursor, p)
	})
}
