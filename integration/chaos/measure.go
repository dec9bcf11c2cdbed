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
type move struct{ Pause, Claim, Open, Silence float64 }

// moves are the planned moves since a time. The events must have been prepared.
func moves(ctx context.Context, d *database, since time.Time) ([]figure, error) {
	rows, err := d.pool.Query(ctx, movesSQL, since)
	if err != nil {
		return nil, err
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[move])
	if err != nil {
		return nil, err
	}
	of := func(name, note string, part func(move) float64) figure {
		ms := make([]float64, len(all))
		for i, m := range all {
			ms[i] = part(m)
		}
		return newFigure(name, note, ms)
	}
	return []figure{
		of("planned move", "release to the next owner's first call, events waiting", func(m move) float64 { return m.Pause }),
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
	f := newFigure("failover", "SIGKILL to another worker's first call, events waiting", ms)
	f.Slowest = stories[:min(len(stories), mostEvidence)]
	return []figure{f}, err
}

// handovers are moves and failovers.
func handovers(ctx context.Context, d *database, since time.Time) ([]figure, error) {
	planned, err := moves(ctx, d, since)
	if err != nil {
		return nil, err
	}
	deaths, err := failovers(ctx, d, since)
	return append(planned, deaths...), err
}
