//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/suisha-go/suisha/shardpub"
)

// breakAll is one run of faults. It fails when a promise was broken.
func breakAll(ctx context.Context, o options, log io.Writer) error {
	some, err := chosen(kinds(), o.only)
	if err != nil {
		return err
	}
	db, err := openDatabase(ctx)
	if err != nil {
		return err
	}
	defer db.close()
	s := &storm{o: o, db: db, fleet: db.fleet(o), kinds: some}
	s.fleet.log = log
	// What was lost with a dropped notification comes soon, and what a fault made fail again.
	s.fleet.base.Poll, s.fleet.base.Tries = time.Second, shardpub.Unlimited
	defer s.fleet.killAll()
	began := time.Now()
	s.say = func(format string, args ...any) {
		fmt.Fprintf(os.Stdout, "%7.1f s  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	s.fleet.died = func(p *process) { s.unexpected(ctx, p) }
	s.say("seed %d, %d workers, %d buckets, %d events/s on %d streams, TTL %s, renewed every %s",
		o.seed, o.workers, o.buckets, o.rate, o.streams, o.ttl, o.renew)
	load := newLoad(db.pool, o)
	if err := s.storms(ctx, load); err != nil {
		return err
	}
	drained := s.drain(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, p := range s.fleet.stopAll() {
		s.trouble("%s ended with %d when nothing was wrong any more", p.name, p.code)
	}
	r, err := s.report(ctx, load, drained)
	if err != nil {
		return err
	}
	return r.finish(os.Stdout, o.json)
}

// storms runs load and faults for the duration, all workers being there first.
func (s *storm) storms(ctx context.Context, load *load) error {
	rng := rand.New(rand.NewPCG(s.o.seed, 3))
	for range s.o.workers {
		s.spawn(ctx, rng)
	}
	owned := func(ctx context.Context) error {
		shares, err := s.db.shares(ctx)
		total := 0
		for _, n := range shares {
			total += n
		}
		if err == nil && total < s.o.buckets {
			err = fmt.Errorf("only %d of %d buckets are owned", total, s.o.buckets)
		}
		return err
	}
	if err := patiently(ctx, owned); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.duration)
	defer cancel()
	var parts sync.WaitGroup
	parts.Go(func() { load.run(ctx) })
	parts.Go(func() { s.watch(ctx) })
	s.run(ctx)
	parts.Wait()
	return nil
}

// watch says every few seconds how things stand.
func (s *storm) watch(ctx context.Context) {
	for pause(ctx, 5*time.Second) {
		events, _, err := s.db.progress(ctx)
		if err != nil {
			s.say("the server does not answer")
			continue
		}
		if done, _, err := s.db.handled(ctx); err == nil {
			s.say("%d of %d events handled, %d workers", done, events, len(s.fleet.live()))
		}
	}
}

// unexpected is told of processes that ended by themselves. One that could not
// start, the server being down, is started again, as an operator would.
func (s *storm) unexpected(ctx context.Context, p *process) {
	if p.code != exitStart {
		s.trouble("%s ended by itself with %d", p.name, p.code)
	}
	s.mu.Lock()
	s.incidents = append(s.incidents, &incident{Kind: "start-failed", Class: classLesser, Targets: []string{p.name}, Began: time.Now(), Ended: time.Now()})
	s.mu.Unlock()
	if ctx.Err() == nil && pause(ctx, time.Second) {
		s.spawn(ctx, rand.New(rand.NewPCG(s.o.seed, rand.Uint64())))
	}
}

const (
	drainLeast = 60 * time.Second
	stillFor   = 15 * time.Second // checkpoints of idle buckets follow every 5 s
)

// drain tells whether the workers drained everything.
func (s *storm) drain(ctx context.Context) bool {
	began := time.Now()
	events, err := s.db.drain(ctx, s.o)
	switch {
	case err == nil:
		s.say("drained %d events in %.1f s", events, time.Since(began).Seconds())
	case ctx.Err() == nil:
		s.trouble("%v", err)
	}
	return err == nil
}

// drain waits until everything is handled and every checkpoint at the end, and
// returns how many events that is. How long it may take follows from how many wait.
func (d *database) drain(ctx context.Context, o options) (int64, error) {
	began := time.Now()
	var events, done, last, slowest int64
	limit := drainLeast
	for first := true; time.Since(began) < limit; {
		var err error
		if events, last, err = d.progress(ctx); err == nil {
			done, slowest, err = d.handled(ctx)
		}
		if err == nil && first {
			first = false
			perSecond := float64(o.buckets) / o.work.Seconds() / 4
			limit += time.Duration(float64(events-done)/perSecond*float64(time.Second)) + stillFor
		}
		if err == nil && done >= events && slowest >= last {
			return events, nil
		}
		if !pause(ctx, 250*time.Millisecond) {
			return events, context.Cause(ctx)
		}
	}
	return events, fmt.Errorf("not drained within %s: %d of %d events, slowest checkpoint %d of %d", limit.Round(time.Second), done, events, slowest, last)
}

func (s *storm) report(ctx context.Context, load *load, drained bool) (*report, error) {
	s.mu.Lock()
	incidents, kills := slices.Clone(s.incidents), slices.Clone(s.kills)
	s.mu.Unlock()
	if err := noteKills(ctx, s.db, kills); err != nil {
		return nil, err
	}
	r := &report{
		Seed: s.o.seed, Seconds: s.o.duration.Seconds(), Workers: s.o.workers, Buckets: s.o.buckets, TTL: s.o.ttl.String(), Renew: s.o.renew.String(),
		Processes: s.fleet.count, Drained: drained, Troubles: s.troubles, Incidents: incidents, FailedAppends: load.failed.Load(),
	}
	var err error
	if r.Findings, err = check(ctx, s.db, s.o.buckets); err != nil {
		return nil, err
	}
	if r.Events, _, err = s.db.progress(ctx); err != nil {
		return nil, err
	}
	if acked := load.appended.Load(); acked > r.Events {
		r.Troubles = append(r.Troubles, fmt.Sprintf("the server has %d events and said yes to %d", r.Events, acked))
	}
	if r.Repeats, err = repeats(ctx, s.db, incidents, s.o.ttl+10*time.Second); err != nil {
		return nil, err
	}
	if r.Claims, err = claims(ctx, s.db); err != nil {
		return nil, err
	}
	r.Figures, err = handovers(ctx, s.db, time.Time{})
	return r, err
}
