package lease

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/suisha-go/suisha/internal/clock"
)

// Pass is what one pass did.
type Pass struct {
	// Share is what the plan deals to this worker, Live the number of live
	// workers.
	Share, Live int
	// Renewed were renewed, Skipped were not because their row was locked, Lost
	// are another's now. Claimed are new, Draining began to go, Released were
	// freed because nothing worked on them. All ascending.
	Renewed, Skipped, Lost, Claimed, Draining, Released []int
	// Missed were to be claimed, but locked or taken.
	Missed []int
	// Awaits: others are about to release buckets that are this worker's share.
	Awaits bool
	// Next is when the next pass is due if nothing wakes the worker.
	Next time.Duration
}

// minStep is what a statement gets even where RenewInterval/3 is less: a deadline
// that ends in the middle of a connection's first statement costs the connection.
// maxLeaveStep bounds a statement of a worker that leaves.
const (
	minStep      = 250 * time.Millisecond
	maxLeaveStep = time.Second
)

// Once is one pass: a beat, one round trip; the plan; and, where there is
// something to do, one more round trip each for claims, for publishing drains
// and for freeing rows. Hand-overs go on in goroutines of their own. Passes of
// one Keeper wait for each other. Each statement has RenewInterval/3, or 250 ms
// where that is less and the TTL leaves room for it.
//
// A failed pass changes nothing: what is owned is kept while it is trusted.
// Errors: [*PassError]; [ErrUsed] after Run has ended.
func (k *Keeper) Once(ctx context.Context) (Pass, error) {
	select {
	case k.turn <- struct{}{}:
	case <-ctx.Done():
		return Pass{}, context.Cause(ctx)
	}
	defer func() { <-k.turn }()
	if k.isEnded() {
		return Pass{}, ErrUsed
	}
	pass, look, err := k.pass(ctx)
	look.failed = err != nil
	look.missed = k.missed
	look.random = k.random()
	if k.cfg.Rhythm != nil {
		look.common = k.cfg.Rhythm.next(clock.Now(), k.cfg.RenewInterval)
	}
	pass.Next = nextPass(k.cfg.RenewInterval, look)
	return pass, err
}

func (k *Keeper) isEnded() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ended
}

// sighted is what a beat brought, and when.
type sighted struct {
	Snapshot
	sent, came time.Time
	// known are the buckets that had an entry when the beat was sent.
	known map[int]bool
}

func (k *Keeper) pass(ctx context.Context) (Pass, outlook, error) {
	if err := k.join(ctx); err != nil {
		return Pass{}, outlook{}, err
	}
	s, err := k.beat(ctx)
	if err != nil {
		k.memory.fail()
		return Pass{}, outlook{}, err
	}
	var pass Pass
	k.absorb(ctx, s, &pass)
	if !s.Joined {
		if err := k.join(ctx); err != nil {
			return pass, outlook{}, err
		}
	}
	live := k.live(s)
	k.cfg.Watch.follow(k, s.Workers)
	k.memory.see(s.sent, s.came, live, s.Rows)
	v := k.view(s, live)
	d := k.plan(v)
	if k.memory.dealt(s.sent, s.came, d.Due, v.keiro) {
		v = k.view(s, live)
		d = k.plan(v)
	}
	pass.Share, pass.Live, pass.Awaits = d.Share, len(v.Members), d.Awaits
	k.mu.Lock()
	k.state.share, k.state.members = d.Share, v.Members
	k.mu.Unlock()
	look := outlook{settling: d.Settling, ripens: k.ripens(s)}
	err = k.act(ctx, s, d, &pass)
	return pass, look, err
}

func (k *Keeper) step(ctx context.Context) (context.Context, context.CancelFunc) {
	spare := k.cfg.TTL - k.cfg.Margin - k.cfg.RenewInterval
	limit := max(k.cfg.RenewInterval/3, min(minStep, spare/2))
	k.mu.Lock()
	if k.leaving {
		limit = min(limit, maxLeaveStep)
	}
	k.mu.Unlock()
	return context.WithTimeout(ctx, limit)
}

func (k *Keeper) join(ctx context.Context) error {
	k.mu.Lock()
	done := k.joined
	k.mu.Unlock()
	if done {
		return nil
	}
	step, cancel := k.step(ctx)
	defer cancel()
	err := k.store.Join(step, Presence{
		Subscription: k.cfg.Subscription.Name, Identity: k.cfg.Identity, Lock: k.cfg.Watch.Lock(),
		TTL: k.cfg.TTL, Weight: k.cfg.Weight, Labels: k.cfg.Labels,
	})
	if err != nil {
		return k.fail(ctx, StepJoin, err)
	}
	k.mu.Lock()
	k.joined = true
	k.mu.Unlock()
	k.event(ctx, Joined, -1, "", nil)
	return nil
}

func (k *Keeper) beat(ctx context.Context) (sighted, error) {
	s := sighted{known: map[int]bool{}}
	b := Beat{
		Subscription: k.cfg.Subscription.Name, Shards: k.cfg.Subscription.Shards, Worker: k.cfg.Identity.Worker,
		TTL: k.cfg.TTL, Weight: k.cfg.Weight, Lock: k.cfg.Watch.Lock(),
	}
	k.mu.Lock()
	b.Leaving = k.leaving
	for bucket, e := range k.entries {
		s.known[bucket] = true
		if e.renewed() {
			b.Renew = append(b.Renew, bucket)
		}
	}
	b.Giving = k.cannot(nil)
	k.mu.Unlock()
	slices.Sort(b.Renew)

	step, cancel := k.step(ctx)
	defer cancel()
	s.sent = clock.Now()
	snapshot, err := k.store.Beat(step, b)
	s.came = clock.Now()
	if err != nil {
		return s, k.fail(ctx, StepBeat, err)
	}
	s.Snapshot = snapshot
	return s, nil
}

// cannot lists the buckets that this worker gives up or cannot take now: those
// with an entry that is not held, those whose entry went while a beat was under
// way, and those resigned. The caller holds mu.
func (k *Keeper) cannot(known map[int]bool) []int {
	var out []int
	for bucket, e := range k.entries {
		if e.phase == draining || e.phase == ending {
			out = append(out, bucket)
		}
	}
	for bucket := range known {
		if k.entries[bucket] == nil {
			out = append(out, bucket)
		}
	}
	now := clock.Now()
	for bucket, until := range k.resigned {
		if now.Before(until) {
			out = append(out, bucket)
		} else {
			delete(k.resigned, bucket)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// absorb believes what the beat says of this worker's own buckets (P-8).
func (k *Keeper) absorb(ctx context.Context, s sighted, pass *Pass) {
	owners := map[int]uuid.UUID{}
	for _, r := range s.Rows {
		owners[r.Bucket] = r.Owner
	}
	trust := NewTrust(s.sent, k.cfg.TTL, k.cfg.Margin)
	pass.Renewed = s.Renewed
	var lost []*entry

	k.mu.Lock()
	k.state.lastBeat, k.state.lastErr = s.came, nil
	if !s.Joined {
		k.joined = false
	}
	foreign := len(s.Foreign) > 0 && !slices.Equal(s.Foreign, k.state.foreign)
	k.state.foreign = s.Foreign
	for bucket, e := range k.entries {
		if !s.known[bucket] || !e.renewed() {
			continue
		}
		_, ours := slices.BinarySearch(s.Renewed, bucket)
		switch {
		case ours:
			e.tenure.Extend(trust)
			e.strayed = 0
		case owners[bucket] == k.cfg.Identity.Worker:
			pass.Skipped = append(pass.Skipped, bucket)
		case e.phase == draining:
			k.stray(ctx, e)
		default:
			lost = append(lost, e)
			pass.Lost = append(pass.Lost, bucket)
		}
	}
	for _, e := range lost {
		k.lose(ctx, e)
	}
	k.mu.Unlock()

	slices.Sort(pass.Skipped)
	slices.Sort(pass.Lost)
	if foreign {
		k.report.error(ctx, &ShardCountError{
			Subscription: k.cfg.Subscription.Name, Configured: k.cfg.Subscription.Shards, Found: s.Foreign,
		})
	}
}

// stray judges a draining bucket that is no longer this worker's. Seen once, its
// own release is the likely cause; seen twice, it was taken. The caller holds mu.
func (k *Keeper) stray(ctx context.Context, e *entry) {
	if e.strayed++; e.strayed > 1 {
		k.giveUp(ctx, e, ErrLost)
	}
}
