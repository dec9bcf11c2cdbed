package lease

import (
	"context"
	"errors"
	"slices"

	"github.com/suisha-go/suisha/internal/clock"
)

// act does what the plan says.
func (k *Keeper) act(ctx context.Context, s sighted, d Decision, pass *Pass) error {
	k.mu.Lock()
	leaving := k.leaving
	k.mu.Unlock()
	if leaving {
		return k.release(ctx, k.unknown(s), pass)
	}
	if err := k.release(ctx, d.Release, pass); err != nil {
		return err
	}
	if err := k.give(ctx, d.Drain, pass); err != nil {
		return err
	}
	return k.claim(ctx, d.Claim, pass)
}

// unknown lists the rows that are this worker's in the database though it works
// on nothing of them.
func (k *Keeper) unknown(s sighted) []int {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []int
	for _, r := range s.Rows {
		if r.Owner == k.cfg.Identity.Worker && !s.known[r.Bucket] && k.entries[r.Bucket] == nil {
			out = append(out, r.Bucket)
		}
	}
	return out
}

func (k *Keeper) release(ctx context.Context, buckets []int, pass *Pass) error {
	if len(buckets) == 0 {
		return nil
	}
	step, cancel := k.step(ctx)
	defer cancel()
	freed, err := k.store.Release(step, Release{
		Subscription: k.cfg.Subscription.Name, Shards: k.cfg.Subscription.Shards,
		Worker: k.cfg.Identity.Worker, Buckets: buckets,
	})
	if err != nil {
		return k.fail(ctx, StepRelease, err)
	}
	pass.Released = freed
	for _, b := range freed {
		k.event(ctx, Released, b, "unused", nil)
	}
	return nil
}

// give publishes what is to drain, then begins: the others never see a bucket
// released that they did not know to be given.
func (k *Keeper) give(ctx context.Context, buckets []int, pass *Pass) error {
	if len(buckets) == 0 {
		return nil
	}
	k.mu.Lock()
	all := append(k.cannot(nil), buckets...)
	k.mu.Unlock()
	slices.Sort(all)
	step, cancel := k.step(ctx)
	defer cancel()
	if err := k.store.Give(step, Giving{
		Subscription: k.cfg.Subscription.Name, Worker: k.cfg.Identity.Worker, Buckets: slices.Compact(all),
	}); err != nil {
		return k.fail(ctx, StepGive, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, b := range buckets {
		if e := k.entries[b]; e != nil && e.phase == held {
			k.drain(ctx, e, Rebalanced)
			pass.Draining = append(pass.Draining, b)
		}
	}
	return nil
}

// errLate: the process stood still, for example.
var errLate = errors.New("the answer came when the lease was to be trusted no more")

func (k *Keeper) claim(ctx context.Context, wanted []Wanted, pass *Pass) error {
	if len(wanted) == 0 {
		k.missed = 0
		return nil
	}
	step, cancel := k.step(ctx)
	defer cancel()
	sent := clock.Now()
	got, err := k.store.Claim(step, Claim{
		Subscription: k.cfg.Subscription.Name, Shards: k.cfg.Subscription.Shards, Worker: k.cfg.Identity.Worker,
		TTL: k.cfg.TTL, Wanted: wanted,
	})
	if err != nil {
		return k.fail(ctx, StepClaim, err)
	}
	trust := NewTrust(sent, k.cfg.TTL, k.cfg.Margin)
	if trust.Left(clock.Now()) == 0 { // the next beat shows what is this worker's
		return k.fail(ctx, StepClaim, errLate)
	}
	slices.Sort(got)
	pass.Claimed = got
	for _, w := range wanted {
		if _, ok := slices.BinarySearch(got, w.Bucket); !ok {
			pass.Missed = append(pass.Missed, w.Bucket)
		}
	}
	if k.missed++; len(pass.Missed) == 0 {
		k.missed = 0
	}
	k.open(ctx, got, wanted, trust)
	return nil
}
