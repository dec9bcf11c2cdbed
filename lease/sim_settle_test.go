package lease_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/suisha-go/suisha/lease"
)

// Times after the last fault.
const (
	// darkFor is how long a bucket may stay nobody's: the TTL, and four intervals to
	// be sure, and to agree on who takes it.
	darkFor = 30*time.Second + 4*10*time.Second
	// unevenFor is how long the shares may be uneven.
	unevenFor = 90 * time.Second
	// calmFor is how long nothing has moved when all is settled: longer than
	// between two beats.
	calmFor = 11500 * time.Millisecond
	// steadyFor is how long nothing may move then.
	steadyFor = 25 * time.Second
)

// of lists what a worker owns.
func (m *table) of(owner uuid.UUID) []int {
	var out []int
	for b, o := range m.owners() {
		if o == owner {
			out = append(out, b)
		}
	}
	return out
}

// ghost is a worker that is dead, but may still be dealt buckets.
func (m *table) ghost(alive map[uuid.UUID]int) uuid.UUID {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, p := range m.workers {
		if _, ok := alive[id]; !ok && !p.gone && !p.leaving && p.expires.After(time.Now()) {
			return id
		}
	}
	return uuid.Nil
}

// amiss says which bucket is nobody's, or a dead worker's, and whose share is
// not as it must be. Beside keiro's workers, which claim one a pass, the shares
// are not judged.
func (w *world) amiss() (dark, uneven string) {
	alive := w.alive()
	w.mu.Lock()
	keiros := map[uuid.UUID]bool{}
	for _, k := range w.keiros {
		keiros[k.id] = true
	}
	w.mu.Unlock()
	counts := map[uuid.UUID]int{}
	for _, p := range alive {
		counts[p.id] = 0
	}
	for b, o := range w.table.owners() {
		if _, ok := counts[o]; !ok && !keiros[o] {
			return fmt.Sprintf("bucket %d is nobody's, or of one that is gone (%v)", b, o[0]), ""
		}
		counts[o]++
	}
	if len(keiros) > 0 {
		return "", ""
	}
	if ghost := w.table.ghost(counts); ghost != uuid.Nil {
		return "", fmt.Sprintf("the presence of %v has still to run out", ghost[0])
	}
	if p := sessionless(alive); p != nil {
		return "", fmt.Sprintf("%v has no session", p)
	}
	return "", unevenness(w.s.shards, alive, counts)
}

// sessionless is a process whose session has ended: it may be taken for dead before it
// is back.
func sessionless(alive []*proc) *proc {
	for _, p := range alive {
		if b := p.current(); b == nil || !b.open(b.over) {
			return p
		}
	}
	return nil
}

// unevenness judges shares: each worker has its quota rounded down or, by the largest
// remainders, one more.
func unevenness(shards int, alive []*proc, counts map[uuid.UUID]int) string {
	total := 0
	for _, p := range alive {
		total += p.weight
	}
	least, most := total, -1 // remainders: the least that got one more, the most that got none
	for _, p := range alive {
		quota, rest := shards*p.weight/total, shards*p.weight%total
		switch counts[p.id] {
		case quota:
			most = max(most, rest)
		case quota + 1:
			least = min(least, rest)
		default:
			return fmt.Sprintf("%v of weight %d owns %d of %d", p, p.weight, counts[p.id], shards)
		}
		if draining := p.keeper.Status().Draining; len(draining) > 0 {
			return fmt.Sprintf("%v still drains %v", p, draining)
		}
	}
	weighted := slices.ContainsFunc(alive, func(p *proc) bool { return p.weight != alive[0].weight })
	alive[0].w.tied = weighted && least == most
	if least < most {
		return fmt.Sprintf("a remainder of %d/%d got a bucket, one of %d/%d did not", least, total, most, total)
	}
	return ""
}

// settle waits until all is owned, in the shares that are due, for longer than
// between two beats; and then nothing may move.
func (w *world) settle() time.Duration {
	began := time.Now()
	since := began
	var before []uuid.UUID
	if len(w.alive()) == 0 {
		return 0
	}
	for !w.broken() {
		time.Sleep(500*time.Millisecond + 11*time.Nanosecond)
		now, owners := time.Now(), w.table.owners()
		dark, uneven := w.amiss()
		switch {
		case dark != "" && now.Sub(began) > w.patience():
			w.violate("%s", dark)
		case uneven != "" && now.Sub(began) > unevenFor:
			w.violate("%s", uneven)
		case dark != "" || uneven != "" || !slices.Equal(before, owners):
			before, since = owners, now
		case now.Sub(since) > calmFor:
			w.steady()
			w.lastDeath(began)
			w.lastLoss()
			return since.Sub(began)
		}
	}
	return 0
}

// patience is how long a bucket may be nobody's: keiro's workers claim one a pass.
func (w *world) patience() time.Duration {
	if len(w.keiros) > 0 {
		return darkFor + time.Duration(w.s.shards+2)*keiroRenew
	}
	return darkFor
}

// steady waits, and nothing may move.
func (w *world) steady() {
	w.leftovers()
	if len(w.keiros) > 0 || w.tied {
		return // keiro's claim one a pass; a tie of unequal weights may be settled late
	}
	before := w.table.owners()
	moved := w.table.moves()
	time.Sleep(w.steadyFor)
	if n := w.table.moves() - moved; n != 0 {
		w.violate("%d moves in a steady state", n)
	}
	if after := w.table.owners(); !slices.Equal(before, after) {
		w.violate("moved in a steady state: %v to %v", firsts(before), firsts(after))
	}
	w.check("steady state")
	for _, p := range w.alive() {
		if held := p.keeper.Status().Held; !slices.Equal(held, w.table.of(p.id)) {
			w.violate("%v holds %v, but owns %v", p, held, w.table.of(p.id))
		}
	}
}

// seenFor is how long the buckets of a worker may be nobody's whose session was seen
// to end: the grace, and a few trips to the database.
const seenFor = 2500 * time.Millisecond

// wellAfter is how long a fault may have the next session watched by nobody: the
// presence of one that died while the server fell has to run out, its watch learns
// of that with a beat, and gives no stranger more time any more.
const wellAfter = time.Minute

// lastDeath kills a worker when all is well again: its buckets are taken at once
// (P-13, P-14). Every third schedule ends so.
func (w *world) lastDeath(since time.Time) {
	alive := w.alive()
	if len(alive) < 2 || w.keiroHere() || w.s.seed%3 != 0 || w.broken() {
		return
	}
	time.Sleep(max(wellAfter-time.Since(since), 0))
	p := alive[int(w.s.seed)%len(alive)]
	w.note("%v is the last to die", p)
	p.kill()
	time.Sleep(10*time.Millisecond + 7*time.Nanosecond)
	w.endBackend(p.current(), false)
	time.Sleep(seenFor)
	if dark, _ := w.amiss(); dark != "" {
		w.violate("%v after the death of %v %s", seenFor, p, dark)
	}
}

// lostFor is how long the buckets of a machine may be nobody's that is lost: the TTL, and
// a second. When all is well its neighbours have watched its leases by then (P-11).
const lostFor = lease.DefaultTTL + time.Second

// lastLoss loses the machine of a worker when all is well again, and nobody sees its
// session end: the buckets are taken when the leases run out. Another third of the
// schedules ends so.
func (w *world) lastLoss() {
	alive := w.alive()
	if len(alive) < 2 || w.keiroHere() || w.s.seed%3 != 1 || w.broken() {
		return
	}
	p := alive[int(w.s.seed/3)%len(alive)]
	w.note("%v is the last to be lost", p)
	p.kill()
	time.Sleep(lostFor)
	if dark, _ := w.amiss(); dark != "" {
		w.violate("%v after the loss of %v %s", lostFor, p, dark)
	}
}

// leftovers looks for those who still believe what was taken from them.
func (w *world) leftovers() {
	owners := w.table.owners()
	w.mu.Lock()
	var faults []string
	for _, s := range w.stints {
		if s.live() && owners[s.bucket] != s.p.id {
			faults = append(faults, fmt.Sprintf("%v has not noticed that bucket %d was taken from it", s.p, s.bucket))
		}
	}
	w.mu.Unlock()
	for _, f := range faults {
		w.violate("%s", f)
	}
}

func firsts(ids []uuid.UUID) []byte {
	out := make([]byte, len(ids))
	for i, id := range ids {
		out[i] = id[0]
	}
	return out
}
