package lease

import (
	"cmp"
	"slices"

	"github.com/google/uuid"
)

// table is a deal in the making: seats for the members that are dealt buckets,
// and the pool of buckets that have no place to stay.
type table struct {
	seats []seat
	pool  []card
	// refusals counts, by bucket, the seats that cannot take it, its owner's aside:
	// that a worker gives a bucket changes no deal of the others.
	refusals map[int]int
}

// seat is a member at the table, with what it keeps.
type seat struct {
	member Member
	share  int
	held   []Lease // what it keeps: it owns them, and is not giving them up
	dealt  int     // what the pool adds
	// transit counts the buckets on their way to it.
	transit int
}

func (s *seat) can(bucket int) bool { return !slices.Contains(s.member.Cannot, bucket) }

func (s *seat) deficit() int { return s.share - len(s.held) - s.dealt }

// card is a bucket of the pool.
type card struct {
	lease Lease
	// giver is the seat that holds more than its share, or -1: free, expired,
	// on its way already, or owned by one that leaves.
	giver int
	// receiver is the seat that it is dealt to, or -1.
	receiver int
}

// deal lays out who keeps what and who gets what. It knows nothing of who asks,
// but for what only a worker itself knows of its own buckets.
func deal(v View) *table {
	t := &table{refusals: map[int]int{}}
	for _, m := range v.Members {
		if m.Leaving {
			continue
		}
		t.seats = append(t.seats, seat{member: m})
		for _, b := range m.Cannot {
			t.refusals[b]++
		}
	}
	slices.SortFunc(t.seats, func(a, b seat) int { return slices.Compare(a.member.ID[:], b.member.ID[:]) })
	for _, l := range v.Leases {
		t.place(v.Self, l)
	}
	t.setShares(v.Shards)
	t.collectExcess()
	t.assign()
	return t
}

func (t *table) find(id uuid.UUID) int {
	i, ok := slices.BinarySearchFunc(t.seats, id, func(s seat, id uuid.UUID) int {
		return slices.Compare(s.member.ID[:], id[:])
	})
	if !ok {
		return -1
	}
	return i
}

// place puts a bucket before its owner, or into the pool.
func (t *table) place(self uuid.UUID, l Lease) {
	if l.State == Void {
		return
	}
	owner := -1
	if l.Owner != uuid.Nil {
		owner = t.find(l.Owner)
	}
	can := owner >= 0 && t.seats[owner].can(l.Bucket)
	if owner >= 0 && !can {
		t.refusals[l.Bucket]--
	}
	// Its own lease is a worker's however old it is (S-24).
	if can && (l.State == Leased || l.Owner == self) {
		t.seats[owner].held = append(t.seats[owner].held, l)
		return
	}
	t.pool = append(t.pool, card{lease: l, giver: -1, receiver: -1})
}

func (t *table) setShares(shards int) {
	var active []int
	for i := range t.seats {
		s := &t.seats[i]
		if s.member.Idle {
			s.share = len(s.held)
			shards -= s.share
			continue
		}
		active = append(active, i)
	}
	claims := make([]claimant, len(active))
	for k, i := range active {
		claims[k] = claimant{weight: max(t.seats[i].member.Weight, 1), holds: len(t.seats[i].held)}
	}
	for k, n := range shares(max(shards, 0), claims) {
		t.seats[active[k]].share = n
	}
}

// collectExcess takes from each seat what it holds beyond its share: first what
// everybody can take, the highest numbers first.
func (t *table) collectExcess() {
	for i := range t.seats {
		s := &t.seats[i]
		over := len(s.held) - s.share
		if over <= 0 {
			continue
		}
		slices.SortStableFunc(s.held, func(a, b Lease) int {
			return cmp.Or(cmp.Compare(t.refusals[b.Bucket], t.refusals[a.Bucket]), cmp.Compare(a.Bucket, b.Bucket))
		})
		for _, l := range s.held[s.share:] {
			t.pool = append(t.pool, card{lease: l, giver: i, receiver: -1})
		}
		s.held = s.held[:s.share]
	}
}

// assign deals the pool: what few can take first, then what can be claimed now.
func (t *table) assign() {
	slices.SortStableFunc(t.pool, func(a, b card) int {
		return cmp.Or(
			cmp.Compare(t.refusals[b.lease.Bucket], t.refusals[a.lease.Bucket]),
			cmp.Compare(rank(a), rank(b)),
			cmp.Compare(a.lease.Bucket, b.lease.Bucket),
		)
	})
	for i := range t.pool {
		c := &t.pool[i]
		c.receiver = t.receiverOf(c)
		if c.receiver < 0 {
			if c.giver >= 0 { // nobody could take it: it stays
				t.seats[c.giver].held = append(t.seats[c.giver].held, c.lease)
			}
			continue
		}
		to := &t.seats[c.receiver]
		to.dealt++
		if c.giver < 0 {
			to.transit++
		}
	}
}

func rank(c card) int {
	switch {
	case c.lease.claimable() && c.giver < 0:
		return 0
	case c.giver < 0:
		return 1
	default:
		return 2
	}
}

// receiverOf finds the first seat under its share that can take the card. A
// bucket that fits nowhere and would be dark goes to who has least.
func (t *table) receiverOf(c *card) int {
	best := -1
	for i := range t.seats {
		s := &t.seats[i]
		if i == c.giver || !s.can(c.lease.Bucket) {
			continue
		}
		if s.deficit() > 0 {
			return i
		}
		if c.giver < 0 && !s.member.Idle && (best < 0 || s.deficit() > t.seats[best].deficit()) {
			best = i
		}
	}
	return best
}

// due lists the other seats that have something to claim.
func (t *table) due(self uuid.UUID) []Due {
	var due []Due
	for i := range t.seats {
		if t.seats[i].member.ID == self {
			continue
		}
		some, free := false, false
		for _, c := range t.pool {
			if c.receiver == i && c.lease.claimable() {
				some = true
				free = free || c.lease.State == Free
			}
		}
		if some {
			due = append(due, Due{Member: t.seats[i].member.ID, Free: free})
		}
	}
	return due
}
