//go:build unix

package main

import (
	"context"
	_ "embed"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

//go:embed sql/kill.sql
var killSQL string

//go:embed sql/moves.sql
var movesSQL string

//go:embed sql/failovers.sql
var failoversSQL string

// figure is a distribution, in milliseconds.
type figure struct {
	Name string  `json:"name"`
	N    int     `json:"n"`
	P50  float64 `json:"p50_ms"`
	P99  float64 `json:"p99_ms"`
	Max  float64 `json:"max_ms"`
	Note string  `json:"note,omitempty"`
	// Slowest says what the slowest were.
	Slowest []string `json:"slowest,omitempty"`
}

func newFigure(name, note string, ms []float64) figure {
	f := figure{Name: name, N: len(ms), Note: note}
	if len(ms) == 0 {
		return f
	}
	slices.Sort(ms)
	f.P50, f.P99, f.Max = quantile(ms, 50), quantile(ms, 99), ms[len(ms)-1]
	return f
}

// quantile is the smallest value that so many per cent do not exceed.
func quantile(sorted []float64, percent int) float64 {
	return sorted[(len(sorted)*percent+99)/100-1]
}

// noteKills writes down when workers were killed, for failovers.
func noteKills(ctx context.Context, d *database, kills []kill) error {
	for _, k := range kills {
		if _, err := d.pool.Exec(ctx, killSQL, k.worker, k.at); err != nil {
			return err
		}
	}
	return nil
}

// move is one planned move of a bucket, in milliseconds.
type move struct {
	Pause, Claim, Open, Silence float64
	Young                       bool // the next owner has just started
}

// moves are the planned moves between two times. The events must have been prepared.
func moves(ctx context.Context, d *database, since, until time.Time) ([]figure, error) {
	rows, err := d.pool.Query(ctx, movesSQL, since, until)
	if err != nil {
		return nil, err
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[move])
	if err != nil {
		return nil, err
	}
	some := func(name, note string, which func(move) bool, part func(move) float64) figure {
		var ms []float64
		for _, m := range all {
			if which(m) {
				ms = append(ms, part(m))
			}
		}
		return newFigure(name, note, ms)
	}
	of := func(name, note string, part func(move) float64) figure {
		return some(name, note, func(move) bool { return true }, part)
	}
	paused := func(m move) float64 { return m.Pause }
	return []figure{
		of("planned move", "release to the next owner's first call, events waiting", paused),
		some("  to a process that just started", "within 2 s of its first claim", func(m move) bool { return m.Young }, paused),
		some("  to one that runs", "", func(m move) bool { return !m.Young }, paused),
		of("  of it, to the claim", "", func(m move) float64 { return m.Claim }),
		of("  of it, from there", "", func(m move) float64 { return m.Open }),
		of("  silence", "last call ended to the next owner's first", func(m move) float64 { return m.Silence }),
	}, nil
}

// failovers are those since a time. The events must have been prepared.
func failovers(ctx context.Context, d *database, since time.Time) ([]figure, error) {
	rows, err := d.pool.Query(ctx, failoversSQL, since)
	if err != nil {
		return nil, err
	}
	type death struct {
		Took  float64
		Story string
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[death])
	ms, stories := make([]float64, len(all)), make([]string, len(all))
	for i, d := range all {
		ms[i], stories[i] = d.Took, d.Story
	}
	f := newFigure("failover", "death to another worker's first call, events waiting", ms)
	f.Slowest = stories[:min(len(stories), mostEvidence)]
	return []figure{f}, err
}

// handovers are moves and failovers.
func handovers(ctx context.Context, d *database, since time.Time) ([]figure, error) {
	planned, err := moves(ctx, d, since, time.Now())
	if err != nil {
		return nil, err
	}
	deaths, err := failovers(ctx, d, since)
	return append(planned, deaths...), err
}
