package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Runner measures questions.
type Runner struct {
	Env *Env
	// Repeats is how often each case is measured, where it is not too slow.
	Repeats int
	// Budget is how long all may take: what remains is then measured once. 0: no
	// limit.
	Budget time.Duration
	// Say reports progress.
	Say func(format string, args ...any)

	began time.Time
}

// Run measures the questions one after the other and makes a report. The first
// case that fails ends it.
func (r *Runner) Run(ctx context.Context, questions []Question) (*Report, error) {
	r.began = time.Now()
	version, commit, err := r.Env.Server.About(ctx)
	if err != nil {
		return nil, err
	}
	report := newReport(version, commit, r)
	for i := range questions {
		q := &questions[i]
		began := time.Now()
		runs, err := r.measure(ctx, q)
		if err != nil {
			return report, fmt.Errorf("%s: %w", q.ID, err)
		}
		report.add(q, runs, time.Since(began))
	}
	report.Seconds = time.Since(r.began).Seconds()
	return report, nil
}

// runs are the values of each case, in the order measured.
type runs map[string][]Values

func (r *Runner) measure(ctx context.Context, q *Question) (runs, error) {
	r.Say("\n%s", q.Title)
	all := runs{}
	if q.Together {
		return all, r.together(ctx, q, all)
	}
	for round := range r.Repeats {
		if round > 0 && r.late() {
			r.Say("  no time for round %d", round+1)
			break
		}
		for _, c := range q.Cases {
			if round > 0 && !again(q, c, all) {
				continue
			}
			began := time.Now()
			values, err := c.Run(ctx, r.Env)
			if err != nil {
				return all, fmt.Errorf("%s: %w", c.Name, err)
			}
			all[c.Name] = append(all[c.Name], values)
			r.Say("  %d  %-58s %14s   (%.1f s)", round+1, c.Name, quantity(values[q.Primary], q.Unit), time.Since(began).Seconds())
		}
	}
	return all, nil
}

// again: the case takes part in later rounds. Of a peer's grid only the best does.
func again(q *Question, c Case, all runs) bool {
	if c.Once || c.Peer == "" {
		return !c.Once
	}
	_, best, _ := View{question: q, medians: medians(all)}.Best(c.Peer, q.Primary)
	return best == c.Name
}

// late: the questions to come would not be done in time with repeats.
func (r *Runner) late() bool { return r.Budget > 0 && time.Since(r.began) > r.Budget }

// together measures all cases at once, once.
func (r *Runner) together(ctx context.Context, q *Question, all runs) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		group sync.WaitGroup
		mu    sync.Mutex
	)
	for _, c := range q.Cases {
		group.Go(func() {
			values, err := c.Run(ctx, r.Env)
			if err != nil {
				cancel(fmt.Errorf("%s: %w", c.Name, err))
				return
			}
			mu.Lock()
			defer mu.Unlock()
			all[c.Name] = append(all[c.Name], values)
			r.Say("  1  %-58s %14s", c.Name, quantity(values[q.Primary], q.Unit))
		})
	}
	group.Wait()
	return context.Cause(ctx)
}

func medians(all runs) map[string]Values {
	out := map[string]Values{}
	for name, list := range all {
		byValue := map[string][]float64{}
		for _, values := range list {
			for value, x := range values {
				byValue[value] = append(byValue[value], x)
			}
		}
		out[name] = Values{}
		for value, xs := range byValue {
			out[name][value] = median(xs)
		}
	}
	return out
}

// median is the middle one, or the mean of the two in the middle.
func median(xs []float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	xs = slices.Sorted(slices.Values(xs))
	half := len(xs) / 2
	if len(xs)%2 == 1 {
		return xs[half]
	}
	return (xs[half-1] + xs[half]) / 2
}

// quantile is the smallest x that a share of all does not exceed.
func quantile(xs []float64, share float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	xs = slices.Sorted(slices.Values(xs))
	return xs[min(int(share*float64(len(xs))), len(xs)-1)]
}
