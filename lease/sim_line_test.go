package lease_test

import (
	"context"
	"errors"
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

// simLine is a process's way to the table. It implements lease.Store.
type simLine struct {
	p     *proc
	store lease.Store // the table's, perhaps with a seeded fault
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
	sky, down := p.sky(), w.isDown()
	switch {
	case down == 1 || sky.kind == fails:
		return errDown
	case down > 1 || sky.kind == cuts:
		<-ctx.Done()
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
	return l.trip(ctx, 3, "joins", func() error { return l.store.Join(ctx, p) })
}

func (l *simLine) Beat(ctx context.Context, b lease.Beat) (lease.Snapshot, error) {
	var s lease.Snapshot
	err := l.trip(ctx, 3, "beats", func() (err error) {
		s, err = l.store.Beat(ctx, b)
		return err
	})
	if err != nil {
		return lease.Snapshot{}, err
	}
	return s, nil
}

func (l *simLine) Give(ctx context.Context, g lease.Giving) error {
	return l.trip(ctx, 3, "gives", func() error { return l.store.Give(ctx, g) })
}

func (l *simLine) Claim(ctx context.Context, c lease.Claim) ([]int, error) {
	var got []int
	err := l.trip(ctx, 3, "claims", func() (err error) {
		marked := map[int]uuid.UUID{}
		for _, w := range c.Wanted {
			marked[w.Bucket] = l.p.w.table.markedOwner(w.Bucket)
		}
		got, err = l.store.Claim(ctx, c)
		for _, b := range got {
			if marked[b] != uuid.Nil && marked[b] != c.Worker {
				l.p.w.excuse(b, marked[b])
			}
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
	err := l.trip(ctx, 3, "releases", func() (err error) {
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
	return l.trip(ctx, 3, "leaves", func() error {
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
