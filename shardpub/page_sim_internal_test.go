package shardpub

import (
	"maps"
	"math"
	"slices"
	"sort"

	"pgregory.net/rapid"

	"github.com/suisha-go/suisha/kiroku"
)

// pageSim is a log, sinks with bounded queues, and a driver that reads pages
// between them as groups says. After every step it checks, against the log
// itself, that no sink missed, repeated or swapped a key.
type pageSim struct {
	tb     rapid.TB
	pick   func(n int) int // any of 0 … n-1
	g      *groups[int]
	log    []simKey
	owned  map[int][]int   // indices into log, by owner
	head   kiroku.Position // the last position ever given
	sinks  map[int]*simSink
	parked starts   // by how far each has read
	page   *simPage // the one that is being read, or nil
	pages  int
	unsaid bool // something was appended and no wake has come since
}

// starts is where each of some sinks starts, or how far it has read.
type starts = map[int]kiroku.Position

// simKey is one entry of the log; a hard delete leaves a hole.
type simKey struct {
	at    kiroku.Position
	owner int
	gone  bool
}

type simSink struct {
	start    kiroku.Position // its checkpoint when it came
	read     kiroku.Position // how far it had read at the last check
	got      []kiroku.Position
	pending  int // queued
	out      bool
	stuck    bool // what is out never ends
	capacity int
}

func (s *simSink) free() int {
	if s.out {
		return s.capacity - s.pending - 1
	}
	return s.capacity - s.pending
}

// drain finishes up to n events, unless the sink is stuck.
func (s *simSink) drain(n int) {
	for ; n > 0 && (s.out || s.pending > 0); n-- {
		if !s.out {
			s.out = true
			s.pending--
		}
		if s.stuck {
			return
		}
		s.out = false
	}
}

type simPage struct {
	ask    ask[int]
	loaded bool
	keys   []simKey
	next   int // index of the key to be queued
	end    kiroku.Position
	more   bool
}

func newPageSim(tb rapid.TB, near kiroku.Position) *pageSim {
	return &pageSim{
		tb: tb, g: newGroups[int](near), pick: func(n int) int { return n - 1 },
		owned: map[int][]int{}, sinks: map[int]*simSink{}, parked: starts{},
	}
}

// write appends one key, hole positions after the last.
func (s *pageSim) write(hole, owner int) {
	s.head += kiroku.Position(1 + hole)
	s.owned[owner] = append(s.owned[owner], len(s.log))
	s.log = append(s.log, simKey{at: s.head, owner: owner})
	s.unsaid = true
}

func always(owner int) func(int) int { return func(int) int { return owner } }

func (s *pageSim) fill(n int, owner func(i int) int) {
	for i := range n {
		s.write(0, owner(i))
	}
}

// wake is a notification, or the poll that makes a lost one good.
func (s *pageSim) wake() {
	s.g.wake()
	s.unsaid = false
}

// join brings sinks in, each at its checkpoint.
func (s *pageSim) join(capacity int, at starts) {
	for id, p := range at {
		s.sinks[id] = &simSink{start: p, read: p, capacity: capacity}
	}
	s.add(at)
}

// add gives sinks to groups and looks where they went (P-29).
func (s *pageSim) add(at starts) {
	before := slices.Clone(s.g.all)
	s.g.add(at)
	for _, gr := range s.g.all {
		for id, p := range at {
			read, in := gr.sinks[id]
			switch {
			case !in:
			case read != p:
				s.tb.Fatalf("sink %d came with %d and has read %d", id, p, read)
			case slices.Contains(before, gr) && read != gr.cursor:
				s.tb.Fatalf("sink %d at %d joined a group at %d", id, read, gr.cursor)
			case read-gr.cursor > s.g.near:
				s.tb.Fatalf("sink %d at %d starts in a group at %d", id, read, gr.cursor)
			}
		}
	}
}

func (s *pageSim) leave(id int) {
	delete(s.sinks, id)
	delete(s.parked, id)
	s.g.remove(id)
}

func (s *pageSim) room(id int) room {
	sink := s.sinks[id]
	return room{free: sink.free(), idle: sink.pending == 0}
}

// ask asks for a page, if none is being read. It reports whether one is now.
func (s *pageSim) ask() bool {
	if s.page != nil {
		return true
	}
	a, ok := s.g.next(s.room)
	if !ok {
		return false
	}
	maps.Copy(s.parked, a.Parked)
	s.checkAsk(a)
	s.page = &simPage{ask: a}
	s.pages++
	return true
}

// load reads the page from the log as it is now.
func (s *pageSim) load(limit int) {
	p := s.page
	if p == nil || p.loaded {
		return
	}
	p.loaded = true
	first := sort.Search(len(s.log), func(i int) bool { return s.log[i].at > p.ask.After })
	for _, k := range s.log[first:] {
		if !k.gone && len(p.keys) < limit {
			p.keys = append(p.keys, k)
		}
	}
	p.more = len(p.keys) == limit
	beyond := slices.IndexFunc(p.keys, func(k simKey) bool { return p.ask.Until != 0 && k.at > p.ask.Until })
	if beyond >= 0 {
		p.keys = p.keys[:beyond]
	}
	switch {
	case p.ask.Until != 0 && (beyond >= 0 || !p.more):
		p.end = p.ask.Until
	case len(p.keys) > 0:
		p.end = p.keys[len(p.keys)-1].at
	default:
		p.end = p.ask.After
	}
}

// fail is a page that could not be read.
func (s *pageSim) fail() {
	if s.page != nil && !s.page.loaded {
		s.g.failed(s.page.ask)
		s.page = nil
	}
}

// queue brings the page's next n keys to their sinks, and ends the page after
// the last.
func (s *pageSim) queue(n int) {
	p := s.page
	if p == nil || !p.loaded {
		return
	}
	for ; n > 0 && p.next < len(p.keys); n-- {
		s.offer(p)
		p.next++
	}
	if p.next == len(p.keys) {
		s.apply()
	}
}

func (s *pageSim) offer(p *simPage) {
	k := p.keys[p.next]
	read, asked := p.ask.Sinks[k.owner]
	sink := s.sinks[k.owner]
	if !asked || sink == nil || k.at <= read {
		return
	}
	if sink.free() <= 0 {
		before := p.ask.After
		if p.next > 0 {
			before = p.keys[p.next-1].at
		}
		s.g.remove(k.owner)
		s.parked[k.owner] = max(before, read)
		return
	}
	last := sink.start
	if n := len(sink.got); n > 0 {
		last = sink.got[n-1]
	}
	if k.at <= last {
		s.tb.Fatalf("sink %d, from %d, got %d after %d", k.owner, sink.start, k.at, last)
	}
	sink.got = append(sink.got, k.at)
	sink.pending++
}

// apply ends the page and checks that it moved those it was read for only (P-28).
func (s *pageSim) apply() {
	p := s.page
	s.page = nil
	before := s.reads()
	s.g.applied(p.ask, p.end, p.more)
	for id, read := range s.reads() {
		want := before[id]
		if _, asked := p.ask.Sinks[id]; asked {
			want = max(want, p.end)
		}
		if read != want {
			s.tb.Fatalf("the page (%d, %d] for %v moved sink %d from %d to %d",
				p.ask.After, p.end, p.ask.Sinks, id, before[id], read)
		}
	}
}

// unpark brings back the parked that have room for at least half.
func (s *pageSim) unpark() {
	back := starts{}
	for id, read := range s.parked {
		if s.room(id).free*2 >= s.sinks[id].capacity {
			back[id] = read
			delete(s.parked, id)
		}
	}
	s.add(back)
}

// turn reads one whole page; false when there is none to read.
func (s *pageSim) turn(limit int) bool {
	if !s.ask() {
		return false
	}
	s.load(limit)
	s.queue(math.MaxInt)
	return true
}
