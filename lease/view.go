package lease

import (
	"slices"
	"time"

	"github.com/google/uuid"
)

// view puts together what the plan needs: the snapshot, the memory, and what
// only this worker knows of its own buckets.
func (k *Keeper) view(s sighted, live []Member) View {
	self := k.cfg.Identity.Worker
	presence := map[uuid.UUID]Worker{}
	for _, w := range s.Workers {
		presence[w.ID] = w
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	v := View{Self: self, Shards: k.cfg.Subscription.Shards}
	for _, m := range live {
		if m.ID == self {
			m.Cannot = k.cannot(s.known)
			m.Leaving = k.leaving
			m.Settled = true
		} else {
			m.Settled = k.memory.settled(s.sent, m.ID)
			m.Idle = k.memory.idle(s.sent, m.ID)
		}
		v.Members = append(v.Members, m)
	}
	for _, r := range s.Rows {
		l := Lease{Bucket: r.Bucket, Owner: r.Owner}
		w, known := presence[r.Owner]
		if w.Gone {
			l.Expiry = r.Expiry
		}
		l.State = k.stateOf(s.sent, r, w.Gone, !known)
		l.Lying = k.memory.lying(s.sent, s.came, r.Bucket, l.claimable())
		e := k.entries[r.Bucket]
		l.Held = r.Owner == self && e != nil && (e.phase == held || e.phase == opening)
		v.Leases = append(v.Leases, l)
	}
	return v
}

func (v View) keiro(id uuid.UUID) bool {
	return slices.ContainsFunc(v.Members, func(m Member) bool { return m.ID == id && m.Keiro })
}

// live lists who counts (P-9): whose presence has neither expired nor been marked
// gone, and the owners of unexpired leases that have no presence. This worker
// always counts.
func (k *Keeper) live(s sighted) []Member {
	self := k.cfg.Identity.Worker
	present := map[uuid.UUID]bool{self: true}
	members := []Member{{ID: self, Weight: k.cfg.Weight}}
	for _, w := range s.Workers {
		present[w.ID] = true
		if w.ID != self && w.Left > 0 && !w.Gone {
			members = append(members, Member{ID: w.ID, Weight: w.Weight, Leaving: w.Leaving, Cannot: w.Giving})
		}
	}
	for _, r := range s.Rows {
		if r.Owner != uuid.Nil && r.Left > 0 && !present[r.Owner] {
			present[r.Owner] = true
			members = append(members, Member{ID: r.Owner, Weight: DefaultWeight, Keiro: true})
		}
	}
	slices.SortFunc(members, func(a, b Member) int { return slices.Compare(a.ID[:], b.ID[:]) })
	return members
}

// stateOf judges a row. A lease that ends at this very moment is neither live nor
// to be claimed (S-2B).
func (k *Keeper) stateOf(sent time.Time, r Row, gone, keiro bool) State {
	switch {
	case r.Owner == uuid.Nil:
		return Free
	case r.Owner == k.cfg.Identity.Worker:
		return Leased
	case r.Expiry == 0:
		return Void
	case gone:
		return Ripe
	case r.Left > 0:
		return Leased
	case r.Left == 0 || keiro && -r.Left <= k.grace():
		return Expired
	case k.memory.ripe(sent, r.Bucket):
		return Ripe
	default:
		return Expired
	}
}

// grace is how long after its end a keiro worker's lease is left alone: that
// worker's clock made it, not the database's.
func (k *Keeper) grace() time.Duration { return k.cfg.TTL / 10 }

// ripens is how long until the next foreign lease expires, or may be claimed.
func (k *Keeper) ripens(s sighted) time.Duration {
	known := map[uuid.UUID]bool{}
	for _, w := range s.Workers {
		known[w.ID] = true
	}
	next := time.Duration(0)
	for _, r := range s.Rows {
		if r.Owner == uuid.Nil || r.Owner == k.cfg.Identity.Worker || r.Expiry == 0 {
			continue
		}
		left := r.Left
		if !known[r.Owner] {
			left += k.grace()
		}
		left = max(left, k.memory.ripeIn(s.sent, r.Bucket))
		if left > 0 && (next == 0 || left < next) {
			next = left
		}
	}
	return next
}
