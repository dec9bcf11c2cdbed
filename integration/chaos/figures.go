//go:build unix

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

//go:embed sql/joined.sql
var joinedSQL string

//go:embed sql/claimed.sql
var claimedSQL string

//go:embed sql/resumed.sql
var resumedSQL string

// figuresWithin bounds all figures together.
const figuresWithin = 40 * time.Minute

// cells are the figures there are.
var cells = []struct {
	name    string
	loaded  bool
	measure func(ctx context.Context, b *bench) ([]figure, error)
}{
	{"moves", true, measureMoves},
	{"failover", true, measureFailover},
	{"lost", true, measureLost},
	{"zombies", true, measureZombies},
	{"joins", true, measureJoins},
	{"cold", false, measureColdStarts},
	{"thousand", false, measureThousand},
	{"restart", true, measureRestarts},
	{"idle", false, measureIdle},
	{"steady", true, measureSteady},
}

// measureAll measures all figures, or those that the command line names.
func measureAll(ctx context.Context, o options, log io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, figuresWithin)
	defer cancel()
	r := report{Seed: o.seed, Buckets: benchBuckets, TTL: "30s", Renew: "10s", Drained: true}
	for _, cell := range cells {
		if o.only != "" && !strings.Contains(","+o.only+",", ","+cell.name+",") {
			continue
		}
		began := time.Now()
		figures, err := measureOne(ctx, o, log, cell.loaded, cell.measure)
		if err != nil {
			r.Troubles = append(r.Troubles, fmt.Sprintf("%s: %v", cell.name, err))
		}
		fmt.Fprintf(os.Stdout, "%s took %.0f s\n", cell.name, time.Since(began).Seconds())
		printFigures(os.Stdout, figures)
		r.Figures = append(r.Figures, figures...)
		if ctx.Err() != nil {
			break
		}
	}
	return r.finish(os.Stdout, o.json)
}

func measureOne(ctx context.Context, o options, log io.Writer, loaded bool, measure func(context.Context, *bench) ([]figure, error)) ([]figure, error) {
	b, err := newBench(ctx, o, log, loaded)
	if err != nil {
		return nil, err
	}
	defer b.close()
	return measure(ctx, b)
}

// measureFailover kills one worker of three again and again.
func measureFailover(ctx context.Context, b *bench) ([]figure, error) {
	return b.failovers(ctx, "SIGKILL", b.fleet.kill)
}

// measureLost does so with machines that vanish, of which the server hears nothing:
// only the end of the lease tells.
func measureLost(ctx context.Context, b *bench) ([]figure, error) {
	b.shorten()
	return b.failovers(ctx, "machine lost, TTL 3 s", b.fleet.lose)
}

// shorten has leases that last three seconds.
func (b *bench) shorten() {
	const ttl = 3 * time.Second
	b.fleet.base.TTL, b.fleet.base.Renew = ttl, ttl/3
}

func (b *bench) failovers(ctx context.Context, name string, end func(*process)) ([]figure, error) {
	all, err := b.start(ctx, 3)
	if err != nil {
		return nil, err
	}
	since := time.Now()
	for len(b.kills)*benchBuckets/3 < 230 {
		if err := b.even(ctx); err != nil {
			return nil, err
		}
		pause(ctx, 5*time.Second)
		dies := all[0]
		b.kills = append(b.kills, kill{dies.name, time.Now()})
		end(dies)
		if err := b.owned(ctx); err != nil {
			return nil, err
		}
		pause(ctx, 2*time.Second)
		next, err := b.start(ctx, 1)
		if err != nil {
			return nil, err
		}
		all = append(all[1:], next...)
	}
	b.still()
	if _, err := b.db.pool.Exec(ctx, prepareSQL); err != nil {
		return nil, err
	}
	if err := noteKills(ctx, b.db, b.kills); err != nil {
		return nil, err
	}
	figures, err := failovers(ctx, b.db, since)
	for i := range figures {
		figures[i].Name += ", " + name
	}
	return figures, err
}

// joinWork is what handlers take where somebody joins.
const joinWork = 5 * time.Millisecond

// measureJoins lets a fourth worker join three others, fifty times.
func measureJoins(ctx context.Context, b *bench) ([]figure, error) {
	b.fleet.base.Work = joinWork
	if _, err := b.start(ctx, 3); err != nil {
		return nil, err
	}
	var each, last []float64
	for range 50 {
		if err := b.even(ctx); err != nil {
			return nil, err
		}
		pause(ctx, time.Second)
		joined, err := b.start(ctx, 1)
		if err != nil {
			return nil, err
		}
		if err := b.even(ctx); err != nil {
			return nil, err
		}
		first, end, err := b.claims(ctx, joinedSQL, joined[0].name)
		if err != nil {
			return nil, err
		}
		each, last = append(each, first...), append(last, end)
		b.fleet.stop(joined[0])
	}
	return []figure{
		newFigure("idle joiner, each bucket", "joined to its claim, 3 workers with handlers of 5 ms before", each),
		newFigure("idle joiner owns its share", "joined to the last claim", last),
	}, nil
}

// measureColdStarts starts one and four workers at once where nobody is.
func measureColdStarts(ctx context.Context, b *bench) ([]figure, error) {
	var figures []figure
	for _, n := range []int{1, 4} {
		some, err := b.coldStarts(ctx, 50, n, fmt.Sprintf("cold start of %d buckets on %d", b.o.buckets, n))
		if err != nil {
			return figures, err
		}
		figures = append(figures, some...)
	}
	return figures, nil
}

// measureThousand starts eight workers at once on 1,024 buckets.
func measureThousand(ctx context.Context, b *bench) ([]figure, error) {
	const buckets = 1024
	b.o.buckets, b.fleet.base.Buckets = buckets, buckets
	return b.coldStarts(ctx, 10, 8, "cold start of 1,024 buckets on 8")
}

// coldStarts starts so many workers at once where nobody is, again and again. It
// measures from then until each bucket is owned, until all are, and until the last claim.
func (b *bench) coldStarts(ctx context.Context, rounds, workers int, name string) ([]figure, error) {
	var each, owned, shared []float64
	for range rounds {
		began := time.Now()
		if _, err := b.start(ctx, workers); err != nil {
			return nil, err
		}
		if err := b.even(ctx); err != nil {
			return nil, err
		}
		first, end, err := b.claims(ctx, claimedSQL, began)
		if err != nil {
			return nil, err
		}
		each, owned, shared = append(each, first...), append(owned, first[len(first)-1]), append(shared, end)
		b.fleet.stopAll()
	}
	return []figure{
		newFigure(name, "processes started to each bucket's claim", each),
		newFigure("  all owned", "processes started to the last bucket's claim", owned),
		newFigure("  exact shares", "processes started to the last claim of all", shared),
	}, nil
}

// claims are when each bucket was first claimed, in order, and when the last one was.
func (b *bench) claims(ctx context.Context, query string, arg any) (first []float64, last float64, err error) {
	rows, err := b.db.pool.Query(ctx, query, arg)
	if err != nil {
		return nil, 0, err
	}
	type claim struct{ First, Last float64 }
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[claim])
	if err == nil && len(all) == 0 {
		err = errNoClaim
	}
	for _, c := range all {
		first, last = append(first, c.First), max(last, c.Last)
	}
	return first, last, err
}

// errNoClaim: shares are even, and nobody ever claimed anything.
var errNoClaim = errors.New("no bucket was claimed")

// measureRestarts restarts the server under three busy workers.
func measureRestarts(ctx context.Context, b *bench) ([]figure, error) {
	if _, err := b.start(ctx, 3); err != nil {
		return nil, err
	}
	var first, every []float64
	stolen := int64(0)
	for range 12 {
		if err := b.even(ctx); err != nil {
			return nil, err
		}
		pause(ctx, 5*time.Second)
		if err := b.db.server.Restart(ctx); err != nil {
			return nil, err
		}
		back := time.Now()
		pause(ctx, 8*time.Second)
		resumed, err := ask[float64](ctx, b.db, resumedSQL, back)
		if err != nil || len(resumed) == 0 {
			return nil, fmt.Errorf("nothing was handled for 8 s after a restart: %w", err)
		}
		moved, err := ask[int64](ctx, b.db, changesSQL, back)
		if err != nil {
			return nil, err
		}
		first, every, stolen = append(first, resumed[0]), append(every, resumed...), stolen+moved[0]
	}
	letters, err := ask[int64](ctx, b.db, lettersSQL)
	if err != nil {
		return nil, err
	}
	if letters[0]+stolen > 0 {
		err = fmt.Errorf("%w: %d dead letters, %d buckets changed hands", errBroken, letters[0], stolen)
	}
	return []figure{
		newFigure("server back, first call", "it answers to the first call", first),
		newFigure("server back, each bucket", fmt.Sprintf("it answers to each bucket's first call; %d dead letters, %d buckets changed hands", letters[0], stolen), every),
	}, err
}
