package lease_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/suisha-go/suisha/lease"
)

var (
	errLostAnswer = errors.New("the answer was lost")
	errDead       = errors.New("the process is dead")
)

// weather is how it fares on a process's way to the table.
type weather struct {
	kind       string
	slow, back time.Duration // how long it takes there, and back
}

// keeperPlace is where a Keeper's statements go out: over its process's session.
const keeperPlace = 3

// simLine is a process's way to the table. It implements lease.Store.
type simLine struct {
	p     *proc
	store lease.Store // the table's, perhaps with a seeded fault

	mu   sync.Mutex
	seen map[int]sighting // by bucket, what the last good beat brought
	last time.Time        // when that came
	calm time.Time        // since when no beat failed or was late
	bad  bool             // the last beat failed
}

// sighting is a lease as a worker sees it, and since when it is so.
type sighting struct {
	lease.Row
	since time.Time
}

var _ lease.Store = (*simLine)(nil)

// trip takes a statement to the table and its answer back. The place keeps the
// statements of one process apart.
func (l *simLine) trip(ctx context.Context, place int, doing string, apply func() error) error {
	p, w := l.p, l.p.w
	p.gate(place)
	if p.dead() {
		return errDead
	}
	var session *backend
	if place == keeperPlace {
		var err error
		if session, err = p.connected(ctx); err != nil {
			return err
		}
	}
	sky, down := p.sky(), w.isDown()
	switch {
	case down == 1 || sky.kind == fails:
		return errDown
	case down > 1 || sky.kind == cuts:
		<-ctx.Done()
		p.abandon(session)
		return ctx.Err()
	}
	way := time.Millisecond + p.apart() + time.Duration(place*13)*time.Nanosecond + sky.slow
	sent := time.Now()
	if err := travel(ctx, way); err != nil {
		if sky.kind == delays && doing != "writes" { // a late checkpoint moves nothing back
			time.AfterFunc(way-time.Since(sent), func() {
				if !w.over() {
					_ = apply()
					w.check(p.String() + " late " + doing)
				}
			})
		}
		return err
	}
	// Whatever was sent arrives, also from a process that has died or stands
	// still.
	if w.over() {
		return errDead
	}
	if session != nil && !session.open(session.over) {
		session.forget()
		return errSession
	}
	err := apply()
	w.check(p.String() + " " + doing)
	if back := travel(ctx, sky.back+time.Microsecond); back != nil {
		return back
	}
	p.gate(place)
	if p.dead() {
		return errDead
	}
	if sky.kind == forgets {
		return errLostAnswer
	}
	return err
}

// apart keeps the processes from doing two things at the same instant: no sum of
// some is another.
func (p *proc) apart() time.Duration {
	n := p.n + 1
	return time.Duration((n*n*n*1709+n*7001)%900_001) * time.Nanosecond
}

// travel takes its time, unless ctx ends.
func travel(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *simLine) Join(ctx context.Context, p lease.Presence) error {
	return l.trip(ctx, keeperPlace, "joins", func() error { return l.store.Join(ctx, p) })
}

func (l *simLine) Beat(ctx context.Context, b lease.Beat) (lease.Snapshot, error) {
	var s lease.Snapshot
	sent := time.Now()
	err := l.trip(ctx, keeperPlace, "beats", func() (err error) {
		s, err = l.store.Beat(ctx, b)
		return err
	})
	l.sees(sent, s.Rows, err)
	if err != nil {
		return lease.Snapshot{}, err
	}
	return s, nil
}

// sees keeps what a worker may know of the others' leases (P-11).
func (l *simLine) sees(sent time.Time, rows []lease.Row, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.bad = true
		return
	}
	now := time.Now()
	if l.bad || l.last.IsZero() || sent.Sub(l.last) > lateBeat {
		l.calm = now
	}
	l.last, l.bad = now, false
	for _, r := range rows {
		if o := l.seen[r.Bucket]; o.Owner != r.Owner || o.Expiry != r.Expiry || o.since.IsZero() {
			l.seen[r.Bucket] = sighting{r, now}
		}
	}
}

// Times of P-11: how long a lease is watched, and when a beat is late.
const (
	watchTime = 12 * time.Second
	lateBeat  = 15 * time.Second
)

// watched: the worker has seen the lease unchanged for long enough.
func (l *simLine) watched(bucket int, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	since := l.seen[bucket].since
	if l.calm.After(since) {
		since = l.calm
	}
	return !l.bad && now.Sub(since) > watchTime
}

func (l *simLine) Give(ctx context.Context, g lease.Giving) error {
	return l.trip(ctx, keeperPlace, "gives", func() error { return l.store.Give(ctx, g) })
}

func (l *simLine) Claim(ctx context.Context, c lease.Claim) ([]int, error) {
	var got []int
	for _, w := range c.Wanted {
		if w.Expected != uuid.Nil && w.Expected != c.Worker && w.Expiry == 0 && !l.watched(w.Bucket, time.Now()) {
			l.p.w.violate("%v wants bucket %d of %v, which it has not watched", l.p, w.Bucket, w.Expected[0])
		}
	}
	err := l.trip(ctx, keeperPlace, "claims", func() (err error) {
		before := l.p.w.table.prior()
		got, err = l.store.Claim(ctx, c)
		for _, b := range got {
			l.p.w.taken(l.p, b, before[b])
		}
		l.p.w.granted(l.p, got)
		l.p.w.note("%v claims %v of %v", l.p, got, c.Wanted)
		return err
	})
	if err != nil {
		return nil, err
	}
	return got, nil
}

// granted: the rows name the process now.
func (w *world) granted(p *proc, buckets []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range buckets {
		p.grants[b] = &grant{}
	}
}

func (l *simLine) Release(ctx context.Context, r lease.Release) ([]int, error) {
	var got []int
	err := l.trip(ctx, keeperPlace, "releases", func() (err error) {
		got, err = l.store.Release(ctx, r)
		l.p.w.note("%v frees %v", l.p, got)
		return err
	})
	if err != nil {
		return nil, err
	}
	return got, nil
}

func (l *simLine) Leave(ctx context.Context, subscription string, worker uuid.UUID) error {
	return l.trip(ctx, keeperPlace, "leaves", func() error {
		l.p.w.note("%v leaves", l.p)
		return l.store.Leave(ctx, subscription, worker)
	})
}

// finish is a holder's last statement for a bucket: the checkpoint and the
// release in one. It tells whether the row was released, and whether it still
// names the worker.
func (l *simLine) finish(ctx context.Context, bucket int) (bool, bool, error) {
	var released, mine bool
	err := l.trip(ctx, 101+2*bucket, "hands over", func() error {
		got, err := l.store.Release(ctx, lease.Release{
			Subscription: name, Shards: l.p.w.s.shards, Worker: l.p.id, Buckets: []int{bucket},
		})
		released = len(got) == 1
		mine = !released && l.p.w.table.owners()[bucket] == l.p.id
		l.p.w.note("%v hands over %d: %v", l.p, bucket, released)
		return err
	})
	if err != nil {
		return false, false, err
	}
	return released, mine, nil
}
