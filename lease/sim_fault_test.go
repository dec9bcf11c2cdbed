package lease_test

import (
	"context"
	"flag"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/suisha-go/suisha/lease"
)

// seededFaults are what somebody may get wrong.
var seededFaults = map[string]fault{
	"a claim does not look at the row": {store: func(s lease.Store) lease.Store { return grabbing{s.(*line)} }},
	"a claim does not look at the expiry": {
		store: func(s lease.Store) lease.Store { return impatient{s.(*line)} },
		kinds: []string{freezes, cuts, slows, slows, joins},
	},
	"a renewal does not look at the owner": {store: func(s lease.Store) lease.Store { return believing{s.(*line)} }},
	"leases run out five seconds early":    {store: func(s lease.Store) lease.Store { return hurried{s.(*line)} }},
	"a beat frees what it does not name":   {store: func(s lease.Store) lease.Store { return forgetful{s.(*line)} }},
	"a lease is trusted to its very end":   {config: lease.Config{Margin: time.Nanosecond}},
	"a fallen server proves death":         {grace: simGrace},
	"a mark does not look at the beat":     {blind: true},
	"a server marks whom it never heard":   {ageless: true},
	"a worker keeps one too many":          {plan: greedy},
	"what is left over goes round":         {plan: restless},
}

func TestSimulatorFindsASeededFault(t *testing.T) { //nolint:paralleltest // it sets flags
	setFlag(t, "rapid.nofailfile", "true")
	setFlag(t, "rapid.shrinktime", "2s")
	var inPlan, inRest events
	for title, fault := range seededFaults {
		t.Run(title, func(t *testing.T) {
			found := &hushed{TB: t}
			var first, last schedule
			var said outcome
			played, needed := 0, 0
			kinds := mixedKinds
			if fault.kinds != nil {
				kinds = fault.kinds
			}
			for !found.failed && played < 20_000 {
				rapid.Check(found, property(t, kinds, fault, func(s schedule, o outcome) {
					played++
					if o.violation != "" {
						last, said = s, o
						if needed == 0 {
							first, needed = s, played
						}
					}
				}))
			}
			if !found.failed {
				t.Fatalf("not found in %d schedules", played)
			}
			t.Logf("after %d schedules: %s\n%v%s", needed, said.violation, last, strings.Join(said.trace, "\n"))
			sum := &inRest
			if fault.plan != nil {
				sum = &inPlan
			}
			sum.drawn, sum.shrunk = sum.drawn+happens(first), sum.shrunk+happens(last)
		})
	}
	// One may be found in a schedule that has nothing to leave out.
	for where, sum := range map[string]events{"in the plan": inPlan, "elsewhere": inRest} {
		t.Logf("%s: from %d events to %d", where, sum.drawn, sum.shrunk)
		if sum.drawn > 0 && sum.shrunk >= sum.drawn {
			t.Errorf("faults %s: shrunk from %d events to %d", where, sum.drawn, sum.shrunk)
		}
	}
}

// events counts those of the schedules that showed faults first, and of the shrunk ones.
type events struct{ drawn, shrunk int }

// happens counts the events that do something.
func happens(s schedule) (n int) {
	for _, e := range s.steps {
		if !e.idle() {
			n++
		}
	}
	return n
}

func setFlag(t *testing.T, name, value string) {
	t.Helper()
	before := flag.Lookup(name).Value.String()
	if err := flag.Set(name, value); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = flag.Set(name, before) })
}

// hushed is a test that rapid may fail.
type hushed struct {
	testing.TB
	failed bool
}

func (h *hushed) Logf(string, ...any)   {}
func (h *hushed) Log(...any)            {}
func (h *hushed) Errorf(string, ...any) { h.failed = true }
func (h *hushed) Error(...any)          { h.failed = true }
func (h *hushed) Fatalf(string, ...any) { h.failed = true }
func (h *hushed) Fatal(...any)          { h.failed = true }
func (h *hushed) Fail()                 { h.failed = true }
func (h *hushed) FailNow()              { h.failed = true }
func (h *hushed) Failed() bool          { return h.failed }

// grabbing claims without a look at the row.
type grabbing struct{ *line }

func (g grabbing) Claim(_ context.Context, c lease.Claim) ([]int, error) {
	return g.take(c, func(lease.Wanted, memRow) bool { return true })
}

// take claims what may be claimed.
func (l *line) take(c lease.Claim, may func(lease.Wanted, memRow) bool) (got []int, err error) {
	l.table.mu.Lock()
	defer l.table.mu.Unlock()
	for _, w := range c.Wanted {
		if r := &l.rows[w.Bucket]; r.owner == uuid.Nil || r.owner == c.Worker || may(w, *r) {
			*r = memRow{owner: c.Worker, expiry: time.Now().Add(c.TTL)}
			got = append(got, w.Bucket)
		}
	}
	return got, nil
}

// impatient takes an expired lease as it was seen, whether or not it has been
// renewed since.
type impatient struct{ *line }

func (i impatient) Claim(_ context.Context, c lease.Claim) ([]int, error) {
	return i.take(c, func(w lease.Wanted, r memRow) bool { return r.owner == w.Expected })
}

// believing renews whatever it is asked to.
type believing struct{ *line }

func (b believing) Beat(ctx context.Context, beat lease.Beat) (lease.Snapshot, error) {
	s, err := b.line.Beat(ctx, beat)
	s.Renewed = beat.Renew
	return s, err
}

// hurried has a clock that is ahead of the one that made the leases.
type hurried struct{ *line }

const ahead = 5 * time.Second

func (h hurried) Beat(ctx context.Context, b lease.Beat) (lease.Snapshot, error) {
	s, err := h.line.Beat(ctx, b)
	for i := range s.Rows {
		s.Rows[i].Left -= ahead
	}
	return s, err
}

func (h hurried) Claim(_ context.Context, c lease.Claim) ([]int, error) {
	return h.take(c, func(w lease.Wanted, r memRow) bool {
		return r.owner == w.Expected && r.expiry.Before(time.Now().Add(ahead))
	})
}

// forgetful frees what is a worker's that renews nothing, as if nothing could be
// under way.
type forgetful struct{ *line }

func (f forgetful) Beat(ctx context.Context, b lease.Beat) (lease.Snapshot, error) {
	f.table.mu.Lock()
	for i := range f.rows {
		if r := &f.rows[i]; r.owner == b.Worker && len(b.Renew) == 0 {
			*r = memRow{}
		}
	}
	f.table.mu.Unlock()
	return f.line.Beat(ctx, b)
}

// greedy keeps one bucket of those that are dealt to others, as if its share were one
// more.
func greedy(v lease.View) lease.Decision {
	d := lease.Plan(v)
	if len(d.Drain) > 0 {
		d.Keep = append(d.Keep, d.Drain[0])
		d.Drain = d.Drain[1:]
	}
	return d
}

// restless forgets who has what equal shares leave over: it goes round, in the order of
// the ids, by a clock that all have in common.
func restless(v lease.View) lease.Decision {
	turn := int(time.Now().Unix() / 20)
	v.Members = slices.Clone(v.Members)
	for i := range v.Members {
		m := &v.Members[i]
		m.Weight = 1000*m.Weight + (i+turn)%len(v.Members)
	}
	return lease.Plan(v)
}
