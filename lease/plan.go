package lease

import (
	"slices"

	"github.com/google/uuid"
)

// View is all that a plan rests on: the snapshot of a beat, and what this worker
// remembers of earlier ones.
type View struct {
	Self   uuid.UUID
	Shards int
	// RenewOnly: keep what is held, change nothing.
	RenewOnly bool
	// Members are the live workers, this one among them, by id.
	Members []Member
	// Leases are the shard rows, by bucket.
	Leases []Lease
}

// Member is a live worker.
type Member struct {
	ID     uuid.UUID
	Weight int
	// Leaving: it is dealt nothing, and what it holds is dealt to others.
	Leaving bool
	// Keiro: it has no presence; its leases are all that is known of it.
	Keiro bool
	// Settled: it was seen in two snapshots at least 100 ms apart, so buckets
	// may drain toward it.
	Settled bool
	// Idle: it let its deal lie. It counts with what it holds until it claims.
	Idle bool
	// Cannot are the buckets that it is giving up, or cannot take now.
	Cannot []int
}

// State is what a shard row means to this worker.
type State int

// The states of a shard row.
const (
	// Free: nobody's.
	Free State = iota
	// Leased: somebody's, with a lease that has not expired.
	Leased
	// Expired: the lease has run out, but its owner may yet renew it.
	Expired
	// Ripe: expired, or its owner is marked gone; to be claimed.
	Ripe
	// Void: an owner without expiry. Nobody may take it.
	Void
)

// Lease is a shard row as this worker sees it.
type Lease struct {
	Bucket int
	// Owner is uuid.Nil for a free row.
	Owner uuid.UUID
	State State
	// Expiry is that of a lease whose owner is marked gone, else 0.
	Expiry int64
	// Held: this worker has a tenure of it that goes on.
	Held bool
	// Lying is for how many intervals it could have been claimed. After one it
	// is anyone's under its share; after two, if it was dealt to a keiro worker,
	// which claims one a pass.
	Lying int
}

// claimable: nothing but another claim or a lock is in the way.
func (l Lease) claimable() bool { return l.State == Free || l.State == Ripe }

// Decision is what a worker does with one view.
type Decision struct {
	// Share is how many buckets the plan deals to this worker in all.
	Share int
	// Claim are the buckets to claim, Drain those to give to others, Release
	// those to free at once because nothing works on them here, Keep those that
	// stay. Each is ascending.
	Claim   []Wanted
	Drain   []int
	Release []int
	Keep    []int
	// Settling: a drain waits until its receiver has been seen twice.
	Settling bool
	// Awaits: others are about to release what is dealt to this worker.
	Awaits bool
	// Due are the other workers that have something to claim.
	Due []Due
}

// Due is another worker that has something to claim.
type Due struct {
	Member uuid.UUID
	// Free: at least one of its buckets is free, not only expired.
	Free bool
}

// Plan decides. It is a pure function, and on equal views of the database
// the decisions of all workers fit together: no bucket is claimed by two, and
// the shares add up. A worker draws level in as few moves as there are.
func Plan(v View) Decision {
	held := v.held()
	if v.RenewOnly {
		return Decision{Share: len(held), Keep: held}
	}
	t := deal(v)
	me := t.find(v.Self)
	if me < 0 { // leaving: its buckets are drained by whoever said so
		return Decision{Keep: held, Due: t.due(v.Self)}
	}
	d := Decision{Share: t.seats[me].share, Due: t.due(v.Self)}
	t.decideOwn(me, &d)
	t.decideClaims(me, &d)
	d.Awaits = t.awaits(me, v.Members)
	slices.SortFunc(d.Claim, func(a, b Wanted) int { return a.Bucket - b.Bucket })
	slices.Sort(d.Drain)
	slices.Sort(d.Release)
	for _, b := range held {
		if !slices.Contains(d.Drain, b) {
			d.Keep = append(d.Keep, b)
		}
	}
	return d
}

func (v View) held() []int {
	var held []int
	for _, l := range v.Leases {
		if l.Held {
			held = append(held, l.Bucket)
		}
	}
	return held
}

// decideOwn takes up what is mine by the database but unknown here, and gives up
// what is dealt to others.
func (t *table) decideOwn(me int, d *Decision) {
	seat := t.seats[me]
	for _, l := range seat.held {
		if !l.Held {
			d.Claim = append(d.Claim, Wanted{Bucket: l.Bucket, Expected: l.Owner})
		}
	}
	for _, c := range t.pool {
		if c.giver != me || c.receiver < 0 {
			continue
		}
		switch to := &t.seats[c.receiver]; {
		case !c.lease.Held:
			d.Release = append(d.Release, c.lease.Bucket)
		case !to.member.Settled:
			d.Settling = true
		case to.member.Keiro && to.transit > 0: // one at a time (P-12)
		default:
			to.transit++
			d.Drain = append(d.Drain, c.lease.Bucket)
		}
	}
}

// decideClaims claims what is dealt to me and, under my share, what others left.
func (t *table) decideClaims(me int, d *Decision) {
	load := len(t.seats[me].held)
	for _, c := range t.pool {
		if c.receiver == me && c.lease.claimable() {
			d.Claim = append(d.Claim, Wanted{Bucket: c.lease.Bucket, Expected: c.lease.Owner, Expiry: c.lease.Expiry})
			load++
		}
	}
	for _, c := range t.pool {
		if load >= t.seats[me].share {
			return
		}
		if c.receiver != me && t.open(c) && t.seats[me].can(c.lease.Bucket) {
			d.Claim = append(d.Claim, Wanted{Bucket: c.lease.Bucket, Expected: c.lease.Owner, Expiry: c.lease.Expiry})
			load++
		}
	}
}

// awaits: some of what is dealt to me is held by others that live and will hear of
// it.
func (t *table) awaits(me int, members []Member) bool {
	return slices.ContainsFunc(t.pool, func(c card) bool {
		return c.receiver == me && c.lease.State == Leased && slices.ContainsFunc(members, func(m Member) bool {
			return m.ID == c.lease.Owner && !m.Keiro
		})
	})
}

// open: whoever was dealt the bucket has had its time.
func (t *table) open(c card) bool {
	patience := 1
	if c.receiver >= 0 && t.seats[c.receiver].member.Keiro {
		patience = 2
	}
	return c.lease.claimable() && c.lease.Lying >= patience
}
