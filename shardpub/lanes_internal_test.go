package shardpub

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/suisha-go/suisha/kiroku"
)

// lanesModel drives lanes and says, from a plain list of what is unsettled,
// what they must answer. It searches the list each time and remembers nothing
// that could be wrong.
type lanesModel struct {
	tb        rapid.TB
	l         *lanes
	width     int
	unsettled []*entry // by position
	out       []*entry // by hand-out
	settled   []kiroku.Position
	handed    map[*entry]int
	followed  bool // some were settled with others: a bucket is not in order then
	behind    int  // how many with one, at most
	pushed    []*entry
	inherited map[kiroku.Position]bool // settled by an earlier owner, or once nobody's
	read      kiroku.Position
	last      kiroku.Position // the last key read, whoever it belongs to
	mark      kiroku.Position
}

func newLanesModel(tb rapid.TB, width int, read kiroku.Position, inherited ...kiroku.Position) *lanesModel {
	m := &lanesModel{
		tb: tb, l: newLanes(width, read, acks{at: inherited}), width: width,
		handed: map[*entry]int{}, inherited: map[kiroku.Position]bool{}, read: read, last: read, mark: read,
	}
	for _, p := range inherited {
		m.inherited[p] = true
	}
	return m
}

// foreign reads keys of other buckets.
func (m *lanesModel) foreign(keys int) { m.last += kiroku.Position(keys) }

// push queues an event that comes hole positions after the last key.
func (m *lanesModel) push(stream, size, hole int) {
	e := &entry{
		event:  kiroku.RecordedEvent{StreamID: int64(stream), Position: m.last + 1 + kiroku.Position(hole)},
		stream: fmt.Sprintf("orders-%d", stream),
		below:  m.last,
		size:   size,
	}
	m.last = e.event.Position
	m.read = m.last
	skipped := !m.l.push(e)
	if skipped != m.inherited[m.last] {
		m.tb.Fatalf("%v was skipped: %v, inherited: %v", at(e), skipped, m.inherited[m.last])
	}
	if skipped {
		m.settled = append(m.settled, m.last)
		return
	}
	m.unsettled = append(m.unsettled, e)
	m.pushed = append(m.pushed, e)
}

// ahead is what must be kept, with the mark where it is: what was settled above it
// (P-39).
func (m *lanesModel) ahead() []kiroku.Position {
	mark := m.read
	if len(m.unsettled) > 0 {
		mark = m.unsettled[0].below
	}
	var ahead []kiroku.Position
	for _, p := range m.settled {
		if p > mark {
			ahead = append(ahead, p)
		}
	}
	for p := range m.inherited {
		if p > m.read {
			ahead = append(ahead, p)
		}
	}
	slices.Sort(ahead)
	return ahead
}

// endPage says that all keys of a page were queued.
func (m *lanesModel) endPage() {
	m.read = m.last
	m.l.advance(m.last)
	m.l.advance(m.last / 2) // an older page changes nothing
}

// eligible is the oldest event that may go out, nil without one.
func (m *lanesModel) eligible() *entry {
	if len(m.out) >= m.width {
		return nil
	}
	far := len(m.ahead()) >= m.l.most
	for i, e := range m.unsettled {
		same := func(o *entry) bool { return o.event.StreamID == e.event.StreamID }
		if !slices.ContainsFunc(m.out, same) {
			return e // an older one of its stream would have been found before it
		}
		if far && i == 0 {
			return nil // only what holds the mark back may go, and it is out
		}
	}
	return nil
}

func (m *lanesModel) next() (*entry, bool) {
	want := m.eligible()
	got, ok := m.l.next()
	if got != want || ok != (want != nil) {
		m.tb.Fatalf("next = %v, %v, want %v", at(got), ok, at(want))
	}
	if !ok {
		return nil, false
	}
	if m.width == 1 && !m.followed && m.pushed[len(m.handed)] != got {
		m.tb.Fatalf("at width 1 %v went out before %v", at(got), at(m.pushed[len(m.handed)]))
	}
	m.out = append(m.out, got)
	m.handed[got]++
	return got, true
}

func (m *lanesModel) settle(i int) {
	e := m.out[i]
	without, ahead := m.l.markWithout(e), m.l.settledAhead(e)
	m.settleWith(i, 0)
	if now := m.l.settledAhead(nil); !slices.Equal(ahead.at, now.at) {
		m.tb.Fatalf("settledAhead(%v) = %v, but after settling it %v", at(e), ahead.at, now.at)
	}
	if mark := m.l.mark(); without != mark {
		m.tb.Fatalf("markWithout(%v) = %v, but the mark after settling it is %v", at(e), without, mark)
	}
}

// settleWith settles what is out, and up to n of those behind it in its stream.
func (m *lanesModel) settleWith(i, n int) {
	e := m.out[i]
	m.out = slices.Delete(m.out, i, i+1)
	n = min(n, m.l.most-len(m.ahead()))
	var behind []*entry
	for _, o := range m.unsettled {
		if o != e && o.event.StreamID == e.event.StreamID && len(behind) < n {
			behind = append(behind, o)
		}
	}
	if got := m.l.following(e, n); !slices.Equal(got, behind) {
		m.tb.Fatalf("%d follow %v, want %d", len(got), at(e), len(behind))
	}
	for _, o := range append(behind, e) {
		m.unsettled = slices.DeleteFunc(m.unsettled, func(u *entry) bool { return u == o })
		m.settled = append(m.settled, o.event.Position)
	}
	for _, o := range behind {
		m.handed[o]++
		m.followed = true
	}
	m.behind = max(m.behind, len(behind))
	m.l.settle(e, len(behind))
}

// check compares everything that can be asked without changing anything.
func (m *lanesModel) check() {
	mark, size := m.read, 0
	if len(m.unsettled) > 0 {
		mark = m.unsettled[0].below
	}
	for _, e := range m.unsettled {
		size += e.size
	}
	if got := m.l.mark(); got != mark {
		m.tb.Fatalf("mark = %v, want %v", got, mark)
	}
	if mark < m.mark {
		m.tb.Fatalf("mark went back from %v to %v", m.mark, mark)
	}
	m.mark = mark
	if m.l.count != len(m.unsettled) || m.l.bytes != size || m.l.out != len(m.out) {
		m.tb.Fatalf("count, bytes, out = %d, %d, %d, want %d, %d, %d",
			m.l.count, m.l.bytes, m.l.out, len(m.unsettled), size, len(m.out))
	}
	if len(m.out) > m.width {
		m.tb.Fatalf("%d are out at width %d", len(m.out), m.width)
	}
	ahead := m.ahead()
	if got := m.l.settledAhead(nil).at; !slices.Equal(got, ahead) || m.l.ahead() != len(ahead) {
		m.tb.Fatalf("settled ahead are %v (%d), want %v", got, m.l.ahead(), ahead)
	}
	if most := m.l.most + m.width*(1+m.behind) + len(m.inherited); len(ahead) >= most {
		m.tb.Fatalf("%d are settled above the mark", len(ahead))
	}
	streams := map[int64]bool{} // each can keep one caller of next busy
	for i, e := range m.unsettled {
		if len(ahead) < m.l.most || i == 0 || slices.Contains(m.out, e) {
			streams[e.event.StreamID] = true
		}
	}
	if n := len(streams); m.l.waitingFor(n) || n > 0 && !m.l.waitingFor(n-1) {
		m.tb.Fatalf("%d streams are unsettled, but waitingFor(%d) = %v", n, n, m.l.waitingFor(n))
	}
	if m.width == 1 && !m.followed && len(ahead) > 0 && len(m.inherited) == 0 {
		m.tb.Fatalf("at width 1 %v are settled above the mark %v", ahead, mark)
	}
}

// finish hands out and settles what is left, newest hand-out first, and looks
// whether everything came exactly once.
func (m *lanesModel) finish() {
	m.endPage()
	for len(m.unsettled) > 0 {
		for handed := true; handed; {
			_, handed = m.next()
		}
		m.settle(len(m.out) - 1)
		m.check()
	}
	for _, e := range m.pushed {
		if m.handed[e] != 1 {
			m.tb.Fatalf("%v was handed out %d times", at(e), m.handed[e])
		}
	}
	if m.l.mark() != m.last || len(m.l.order) != 0 || len(m.l.byID) != 0 || m.l.waitingFor(0) {
		m.tb.Fatalf("when all is settled: mark %v of %v, %d entries and %d lanes left",
			m.l.mark(), m.last, len(m.l.order), len(m.l.byID))
	}
}

func at(e *entry) string {
	if e == nil {
		return "none"
	}
	return fmt.Sprintf("%s@%d", e.stream, e.event.Position)
}

// TestLanesAgreeWithAListOfUnsettledEvents covers P-28, P-30, P-33, P-37 and P-39.
func TestLanesAgreeWithAListOfUnsettledEvents(t *testing.T) {
	t.Parallel()
	for _, width := range []int{1, 4, 64} {
		t.Run(fmt.Sprintf("width %d", width), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				// More streams than lanes, or few that are long.
				streams := rapid.SampledFrom([]int{1, 2, 5, 100}).Draw(t, "streams")
				read := kiroku.Position(rapid.IntRange(0, 50).Draw(t, "read"))
				var inherited []kiroku.Position
				for p := read; rapid.IntRange(0, 3).Draw(t, "another") > 0; {
					p += kiroku.Position(rapid.IntRange(1, 9).Draw(t, "gap"))
					inherited = append(inherited, p)
				}
				m := newLanesModel(t, width, read, inherited...)
				m.l.most = rapid.SampledFrom([]int{1, 3, maxAhead}).Draw(t, "most")
				follow := rapid.Bool().Draw(t, "follow")
				handOut := func(t *rapid.T) {
					m.tb = t
					m.next()
				}
				actions := map[string]func(*rapid.T){
					"": func(t *rapid.T) { m.tb = t; m.check() },
					"push some": func(t *rapid.T) {
						m.tb = t
						for range rapid.IntRange(1, 8).Draw(t, "events") {
							m.push(rapid.IntRange(1, streams).Draw(t, "stream"),
								rapid.IntRange(0, 999).Draw(t, "size"), rapid.IntRange(0, 3).Draw(t, "hole"))
						}
					},
					"foreign keys": func(t *rapid.T) { m.foreign(rapid.IntRange(1, 9).Draw(t, "keys")) },
					"end of page":  func(t *rapid.T) { m.tb = t; m.endPage() },
					"next":         handOut,
					"next again":   handOut, // twice as often as the others
					"settle several": func(t *rapid.T) {
						m.tb = t
						if len(m.out) > 0 && follow {
							m.settleWith(rapid.IntRange(0, len(m.out)-1).Draw(t, "which"), rapid.IntRange(0, 5).Draw(t, "behind"))
						}
					},
					"settle": func(t *rapid.T) {
						m.tb = t
						if len(m.out) > 0 {
							m.settle(rapid.IntRange(0, len(m.out)-1).Draw(t, "which"))
						}
					},
				}
				t.Repeat(actions)
				t.Repeat(actions)
				m.tb = t
				m.finish()
			})
		})
	}
}

// FuzzLanes plays bytes: the first is the width, then one operation each.
func FuzzLanes(f *testing.F) {
	f.Add([]byte{1, 0, 8, 2, 3, 4, 0, 3, 4})
	f.Add([]byte{4, 0, 8, 16, 24, 32, 3, 3, 3, 3, 3, 12, 4, 2, 3, 4})
	f.Add([]byte{64, 9, 0, 0, 8, 8, 3, 3, 20, 1, 1, 2, 2, 3, 4, 4, 4})
	f.Fuzz(func(t *testing.T, program []byte) {
		if len(program) == 0 || len(program) > 1000 {
			t.Skip()
		}
		first := kiroku.Position(program[0])
		var inherited []kiroku.Position
		if first%2 == 1 {
			inherited = []kiroku.Position{first + 1, first + 2, first + 9}
		}
		m := newLanesModel(t, max(1, int(program[0])%65), first, inherited...)
		m.l.most = 1 + len(program)%7
		for _, b := range program[1:] {
			arg := int(b / 5)
			switch b % 5 {
			case 0:
				m.push(arg%12, arg, arg%3)
			case 1:
				m.foreign(arg)
			case 2:
				m.endPage()
			case 3:
				m.next()
			case 4:
				if len(m.out) > 0 {
					m.settle(arg % len(m.out))
				}
			}
			m.check()
		}
		m.finish()
	})
}

// TestOneStreamGoesOutOneByOne: P-33, however many lanes there are.
func TestOneStreamGoesOutOneByOne(t *testing.T) {
	t.Parallel()
	m := newLanesModel(t, 64, 0)
	for range 3 {
		m.push(7, 1, 0)
	}
	for range 3 {
		if _, ok := m.next(); !ok {
			t.Fatal("a stream with nothing out does not go on")
		}
		if e, ok := m.next(); ok {
			t.Fatalf("%v went out beside its predecessor", at(e))
		}
		m.settle(0)
	}
	m.finish()
}

// TestMarkWaitsBelowAnEventThatIsRetried: P-30, P-37. What overtakes it on
// other lanes is not in the checkpoint, neither plainly nor beside a dead letter.
func TestMarkWaitsBelowAnEventThatIsRetried(t *testing.T) {
	t.Parallel()
	m := newLanesModel(t, 4, 10)
	m.foreign(5)
	for stream := range 4 {
		m.push(stream, 1, 1)
		m.next()
	}
	m.foreign(5)
	m.endPage()
	retried := m.out[0]
	for len(m.out) > 1 {
		if got := m.l.markWithout(m.out[1]); got != 15 {
			t.Fatalf("a dead letter of %v would write the checkpoint %v, want 15", at(m.out[1]), got)
		}
		m.settle(1)
		m.check()
	}
	if got := m.l.mark(); got != retried.below || got != 15 {
		t.Fatalf("mark = %v, want 15", got)
	}
	if got := m.l.markWithout(retried); got != 28 {
		t.Fatalf("markWithout = %v, want 28: all that was read", got)
	}
	m.finish()
}
