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
	head   kiroku.Position // the last position ever given
	sinks  map[int]*simSink
	parked map[int]kiroku.Position // by how far each has read
	page   *simPage                // the one that is being read, or nil
	pages  int
	unsaid bool // something was appended and no wake has come since
}

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
		sinks: map[int]*simSink{}, parked: map[int]kiroku.Position{},
	}
}

// write appends one key, hole positions after the last.
func (s *pageSim) write(hole, owner int) {
	s.head += kiroku.Position(1 + hole)
	s.log = append(s.log, simKey{at: s.head, owner: owner})
	s.unsaid = true
}

// wake is a notification, or the poll that makes a lost one good.
func (s *pageSim) wake() {
	s.g.wake()
	s.unsaid = false
}

// join brings sinks in, each at its checkpoint.
func (s *pageSim) join(capacity int, at map[int]kiroku.Position) {
	for id, p := range at {
		s.sinks[id] = &simSink{start: p, read: p, capacity: capacity}
	}
	s.add(at)
}

// add gives sinks to groups and looks where they went (P-29).
func (s *pageSim) add(at map[int]kiroku.Position) {
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
	return room{free: sink.free(), idle: sink.pending == 0, total: sink.capacity}
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

func (s *pageSim) checkAsk(a ask[int]) {
	free := 0
	for id, read := range a.Sinks {
		free += s.sinks[id].free()
		if s.sinks[id].free() <= 0 || read < a.After {
			s.tb.Fatalf("sink %d, read %d, free %d, is in the ask after %d", id, read, s.sinks[id].free(), a.After)
		}
	}
	for id := range a.Parked {
		if _, both := a.Sinks[id]; both || s.sinks[id].free() > 0 {
			s.tb.Fatalf("sink %d was parked with %d free; in the page too: %v", id, s.sinks[id].free(), both)
		}
	}
	if len(a.Sinks) == 0 || a.Free != free || a.After != a.group.cursor || a.Until != 0 && a.Until <= a.After {
		s.tb.Fatalf("ask (%d, %d] for %v with %d free, want %d, in a group at %d",
			a.After, a.Until, a.Sinks, a.Free, free, a.group.cursor)
	}
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
		s.g.park(k.owner)
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
	back := map[int]kiroku.Position{}
	for id, read := range s.parked {
		if r := s.room(id); r.free*2 >= r.total {
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

// reads is how far each sink in a group has read, by its group.
func (s *pageSim) reads() map[int]kiroku.Position {
	reads := map[int]kiroku.Position{}
	for _, gr := range s.g.all {
		for id, read := range gr.sinks {
			if _, twice := reads[id]; twice {
				s.tb.Fatalf("sink %d is in two groups", id)
			}
			reads[id] = read
		}
	}
	return reads
}

// check looks at everything between two steps.
func (s *pageSim) check() {
	for i, gr := range s.g.all {
		if i > 0 && s.g.all[i-1].cursor >= gr.cursor {
			s.tb.Fatalf("cursors %d and %d do not ascend", s.g.all[i-1].cursor, gr.cursor)
		}
		if len(gr.sinks) == 0 {
			s.tb.Fatalf("the group at %d has no sinks", gr.cursor)
		}
		for id, read := range gr.sinks {
			if read < gr.cursor {
				s.tb.Fatalf("sink %d has read %d, its group %d", id, read, gr.cursor)
			}
		}
	}
	reads := s.reads()
	for id, read := range s.parked {
		if _, grouped := reads[id]; grouped {
			s.tb.Fatalf("sink %d is parked and in a group", id)
		}
		reads[id] = read
	}
	if len(reads) != len(s.sinks) {
		s.tb.Fatalf("%d sinks are there, %d are known: %v", len(s.sinks), len(reads), reads)
	}
	for id, sink := range s.sinks {
		read, known := reads[id]
		if !known || read < sink.read {
			s.tb.Fatalf("sink %d had read %d, now %d (known: %v)", id, sink.read, read, known)
		}
		sink.read = read
		s.checkGot(id, sink)
	}
}

// checkGot: a sink has exactly its keys up to where it has read, and nothing
// beyond but from the page that is being queued for it.
func (s *pageSim) checkGot(id int, sink *simSink) {
	next := 0
	for _, k := range s.log {
		if k.owner != id || k.at <= sink.start || k.at > sink.read {
			continue
		}
		switch {
		case next < len(sink.got) && sink.got[next] == k.at:
			next++
		case !k.gone:
			s.tb.Fatalf("sink %d, from %d, has read %d without %d: %v", id, sink.start, sink.read, k.at, sink.got)
		}
	}
	if next == len(sink.got) {
		return
	}
	paged := false
	if s.page != nil {
		_, paged = s.page.ask.Sinks[id]
	}
	if !paged || sink.got[next] <= sink.read {
		s.tb.Fatalf("sink %d, from %d, has read %d and got %v", id, sink.start, sink.read, sink.got)
	}
}

// runDry reads until nothing is left to read, while all sinks that are not
// stuck take what they get. One wake makes up for those that were lost.
func (s *pageSim) runDry(limit int) {
	if s.unsaid {
		s.wake()
	}
	bound := s.pages + (len(s.log)+4)*(len(s.sinks)+1)
	for reading := true; reading; {
		for _, sink := range s.sinks {
			sink.drain(math.MaxInt)
		}
		s.unpark()
		reading = s.turn(limit)
		s.check()
		if s.pages > bound {
			s.tb.Fatalf("%d sinks need more than %d pages for a log of %d keys", len(s.sinks), bound, len(s.log))
		}
	}
}

// finish: sinks that are not stuck get all that is theirs, then the stuck ones
// come loose and get theirs; in the end all read together.
func (s *pageSim) finish(limit int) {
	s.load(limit)
	s.queue(math.MaxInt)
	s.runDry(limit)
	s.complete(func(sink *simSink) bool { return !sink.stuck })
	for _, sink := range s.sinks {
		sink.stuck = false
	}
	s.runDry(limit)
	s.complete(func(*simSink) bool { return true })
	if len(s.sinks) > 0 && len(s.g.all) != 1 || len(s.parked) > 0 {
		s.tb.Fatalf("at rest there are %d groups, parked %v", len(s.g.all), s.parked)
	}
}

// complete: each chosen sink has all of its keys. What it has up to its read
// was checked already.
func (s *pageSim) complete(chosen func(*simSink) bool) {
	for id, sink := range s.sinks {
		for _, k := range s.log {
			if chosen(sink) && k.owner == id && !k.gone && k.at > sink.read {
				s.tb.Fatalf("sink %d rests at %d and never gets %d", id, sink.read, k.at)
			}
		}
	}
}
