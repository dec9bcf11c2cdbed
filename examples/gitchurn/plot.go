package main

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/suisha-go/suisha/examples/gitchurn/internal/screen"
	"github.com/suisha-go/suisha/examples/gitchurn/internal/verify"
)

var (
	//go:embed sql/now.sql
	nowSQL string
	//go:embed sql/checkpoints.sql
	checkpointsSQL string
)

const (
	killShare    = 0.4         // of the work is done when a worker is killed
	restartDelay = time.Second // from the kill until another is started
	settleTime   = time.Second // for the last checkpoints, which follow the events
)

// plot is what happens to the workers, in three steps: one is killed, another
// is started, and the buckets of the first are with others.
type plot struct {
	demo *demo
	rate rate

	done  int64
	moved time.Time // when done last grew

	victim  *process
	buckets []bucket
	heir    *process
	adopted bool
}

func (p *plot) next(ctx context.Context, s sample) error {
	d := p.demo
	if s.done > p.done {
		p.done, p.moved = s.done, time.Now()
	}
	if p.victim == nil {
		number := s.victim(d.options.workers)
		if number > 0 && float64(s.done) >= killShare*float64(d.total()) && s.done < int64(d.total()) {
			return p.kill(ctx, d.fleet.workers[number-1], s.held[number])
		}
		return nil
	}
	if !p.adopted && s.adopted(p.buckets, p.victim.number) {
		p.adopted = true
		d.event("every bucket of worker %d has a new owner", p.victim.number)
	}
	if p.heir != nil || time.Since(p.victim.killed) < restartDelay {
		return nil
	}
	var err error
	if p.heir, err = d.fleet.start(ctx); err == nil {
		d.event("worker %d starts, pid %d", p.heir.number, p.heir.cmd.Process.Pid)
	}
	return err
}

// over reports whether all is counted and checkpointed, or nothing moves.
func (p *plot) over(s sample) bool {
	quiet := time.Since(p.moved)
	if s.done < int64(p.demo.total()) {
		return quiet > patience
	}
	return s.settled() || quiet > settleTime
}

func (p *plot) kill(ctx context.Context, victim *process, held []bucket) error {
	d := p.demo
	k := verify.Kill{Worker: workerConfig{Number: victim.number}.name()}
	var subscriptions []string
	for _, b := range held {
		subscriptions = append(subscriptions, b.subscription)
		k.Categories, k.Buckets = append(k.Categories, categories[b.subscription]), append(k.Buckets, b.number)
	}
	if err := d.pool.QueryRow(ctx, nowSQL).Scan(&k.At); err != nil {
		return fmt.Errorf("clock of the database: %w", err)
	}
	if err := victim.kill(); err != nil {
		return err
	}
	rows, err := d.pool.Query(ctx, checkpointsSQL, pgx.NamedArgs{"subscriptions": subscriptions, "buckets": k.Buckets})
	if err == nil {
		k.Checkpoints, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	}
	if err != nil {
		return fmt.Errorf("checkpoints of %s: %w", k.Worker, err)
	}
	p.victim, p.buckets, d.kill = victim, held, k
	d.event("SIGKILL to worker %d, pid %d, which owned %s", victim.number, victim.cmd.Process.Pid,
		screen.Counted(int64(len(held)), "bucket", "buckets"))
	return nil
}
