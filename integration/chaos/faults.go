//go:build unix

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

// Classes of faults.
const (
	classProcess = "process"
	classSession = "session"
	classNetwork = "network"
	classServer  = "server"
	classPlanned = "planned"
	classLesser  = "lesser"
)

// kind is one kind of fault. run makes it happen, undoes it and returns; it sooner
// does so when ctx ends. It returns false when there was nobody to break.
type kind struct {
	name, class string
	weight      int
	run         func(ctx context.Context, s *storm, rng *rand.Rand, i *incident) bool
}

// incident is one fault that happened.
type incident struct {
	Kind    string    `json:"kind"`
	Class   string    `json:"class"`
	Targets []string  `json:"targets"` // empty for all
	Began   time.Time `json:"began"`
	Ended   time.Time `json:"ended"`
	Repeats int       `json:"repeats"` // blamed on it
}

// mild faults are planned, or leave sessions and processes alone.
func (i *incident) mild() bool { return i.Class == classPlanned || i.Class == classLesser }

func (i *incident) hit(all ...*process) {
	for _, p := range all {
		i.Targets = append(i.Targets, p.name)
	}
}

// kill is a SIGKILL.
type kill struct {
	worker string
	at     time.Time
}

// storm makes faults happen.
type storm struct {
	o     options
	db    *database
	fleet *fleet
	kinds []kind
	say   func(format string, args ...any)

	server sync.Mutex // held by faults of the server

	mu        sync.Mutex
	incidents []*incident
	kills     []kill
	troubles  []string // what went wrong that should not have
}

// chosen are the kinds that the command line names.
func chosen(all []kind, only string) ([]kind, error) {
	if only == "" {
		return all, nil
	}
	var some []kind
	for name := range strings.SplitSeq(only, ",") {
		found := false
		for _, k := range all {
			if k.name == name || k.class == name {
				some, found = append(some, k), true
			}
		}
		if !found {
			return nil, fmt.Errorf("there is no fault %q", name)
		}
	}
	return some, nil
}

// run breaks things until ctx ends, and returns when all is mended.
func (s *storm) run(ctx context.Context) {
	rng := rand.New(rand.NewPCG(s.o.seed, 2))
	slots := make(chan struct{}, s.o.atOnce)
	var running sync.WaitGroup
	defer running.Wait()
	for pause(ctx, between(rng, s.o.gap/5, s.o.gap*9/5)) {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		k, own := s.choose(rng), rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64()))
		running.Go(func() {
			defer func() { <-slots }()
			s.happen(ctx, k, own)
		})
	}
}

func (s *storm) choose(rng *rand.Rand) kind {
	total := 0
	for _, k := range s.kinds {
		total += k.weight
	}
	n := rng.IntN(total)
	for _, k := range s.kinds {
		if n -= k.weight; n < 0 {
			return k
		}
	}
	return s.kinds[0]
}

func (s *storm) happen(ctx context.Context, k kind, rng *rand.Rand) {
	i := &incident{Kind: k.name, Class: k.class, Began: time.Now()}
	if !k.run(ctx, s, rng, i) {
		return
	}
	i.Ended = time.Now()
	s.mu.Lock()
	s.incidents = append(s.incidents, i)
	s.mu.Unlock()
	s.say("%s %s for %s", k.name, strings.Join(i.Targets, " "), i.Ended.Sub(i.Began).Round(time.Millisecond))
}

// trouble notes what nothing excuses.
func (s *storm) trouble(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.troubles = append(s.troubles, fmt.Sprintf(format, args...))
}

// noteKill notes a SIGKILL that is about to be sent.
func (s *storm) noteKill(p *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kills = append(s.kills, kill{p.name, time.Now()})
}

// spawn starts a worker, sometimes one that is odd.
func (s *storm) spawn(ctx context.Context, rng *rand.Rand) *process {
	ctx = context.WithoutCancel(ctx)
	p, err := s.fleet.start(ctx, func(w *workerSpec) {
		switch rng.IntN(8) {
		case 0:
			w.Shift = 10 * time.Minute
		case 1:
			w.Shift = -10 * time.Minute
		case 2:
			w.Sessionless = true
		}
	})
	if err != nil {
		s.trouble("cannot start a worker: %v", err)
		return nil
	}
	return p
}

// between is a time between two others.
func between(rng *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(rng.Int64N(int64(most-least)+1))
}
