package shardpub

import (
	"math"
)

// reads is how far each sink in a group has read, by its group.
func (s *pageSim) reads() starts {
	reads := starts{}
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
	for _, i := range s.owned[id] {
		k := s.log[i]
		if k.at <= sink.start || k.at > sink.read {
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
		for _, i := range s.owned[id] {
			if k := s.log[i]; chosen(sink) && !k.gone && k.at > sink.read {
				s.tb.Fatalf("sink %d rests at %d and never gets %d", id, sink.read, k.at)
			}
		}
	}
}

// checkAsk looks at a page that is about to be read.
func (s *pageSim) checkAsk(a ask[int]) {
	for id, read := range a.Sinks {
		if s.sinks[id].free() <= 0 || read < a.After {
			s.tb.Fatalf("sink %d, read %d, free %d, is in the ask after %d", id, read, s.sinks[id].free(), a.After)
		}
	}
	for id := range a.Parked {
		if _, both := a.Sinks[id]; both || s.sinks[id].free() > 0 {
			s.tb.Fatalf("sink %d was parked with %d free; in the page too: %v", id, s.sinks[id].free(), both)
		}
	}
	if len(a.Sinks) == 0 || a.After != a.group.cursor || a.Until != 0 && a.Until <= a.After {
		s.tb.Fatalf("ask (%d, %d] for %v in a group at %d", a.After, a.Until, a.Sinks, a.group.cursor)
	}
}

// count is how many pages f reads.
func (s *pageSim) count(f func()) int {
	before := s.pages
	f()
	s.check()
	return s.pages - before
}
