//go:build unix

package main

import (
	"context"
	_ "embed"
	"slices"
	"time"
)

//go:embed sql/prepare.sql
var prepareSQL string

//go:embed sql/lost.sql
var lostSQL string

//go:embed sql/holes.sql
var holesSQL string

//go:embed sql/disorder.sql
var disorderSQL string

//go:embed sql/tenure_disorder.sql
var tenureDisorderSQL string

//go:embed sql/uncovered.sql
var uncoveredSQL string

//go:embed sql/backward.sql
var backwardSQL string

//go:embed sql/zombies.sql
var zombiesSQL string

//go:embed sql/thefts.sql
var theftsSQL string

//go:embed sql/late.sql
var lateSQL string

//go:embed sql/claims.sql
var claimsSQL string

//go:embed sql/repeats.sql
var repeatsSQL string

// finding is the answer to one question of the checker.
type finding struct {
	Name     string   `json:"name"`
	Count    int      `json:"count"`
	Promised bool     `json:"promised"` // more than 0 is a violation
	Evidence []string `json:"evidence,omitempty"`
}

// mostEvidence is how many cases are shown of each finding.
const mostEvidence = 20

func found(name string, promised bool, cases []string) finding {
	return finding{name, len(cases), promised, cases[:min(len(cases), mostEvidence)]}
}

// Findings that figures name.
const (
	foundLost     = "lost events"
	foundDisorder = "order violations"
)

// questions each return one row per case.
var questions = []struct {
	name     string
	promised bool
	sql      string
}{
	{foundLost, true, lostSQL},
	{"holes in streams", true, holesSQL},
	{foundDisorder, true, disorderSQL},
	{"order violations in a tenure", true, tenureDisorderSQL},
	{"events covered before they were handled", true, uncoveredSQL},
	{"checkpoints that went back", true, backwardSQL},
	{"accepted zombie writes", true, zombiesSQL},
	{"ownership violations", true, theftsSQL},
	{"calls begun without the lease", false, lateSQL},
}

// check asks all questions. Nothing may be written meanwhile.
func check(ctx context.Context, d *database, buckets int) ([]finding, error) {
	if _, err := d.pool.Exec(ctx, prepareSQL); err != nil {
		return nil, err
	}
	var findings []finding
	for _, q := range questions {
		var args []any
		if q.sql == uncoveredSQL {
			args = append(args, buckets)
		}
		cases, err := ask[string](ctx, d, q.sql, args...)
		if err != nil {
			return nil, err
		}
		findings = append(findings, found(q.name, q.promised, cases))
	}
	cases, err := impossible(ctx, d)
	if err != nil {
		return nil, err
	}
	return append(findings, found("impossible histories", true, cases)), nil
}

// repeat is a call for an event that had been called before.
type repeat struct {
	worker, before  string
	began, beforeAt time.Time
	attempt         int
}

// Causes of repeats that are no faults.
const (
	causeRetry = "failed attempt" // the same worker again: its handler's row was not written
	causeNone  = "no fault"
)

// repeats counts repeats by what happened to their workers lately.
func repeats(ctx context.Context, d *database, incidents []*incident, after time.Duration) (map[string]int, error) {
	rows, err := d.pool.Query(ctx, repeatsSQL)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	by := map[string]int{}
	for rows.Next() {
		var r repeat
		if err := rows.Scan(&r.worker, &r.before, &r.began, &r.beforeAt, &r.attempt); err != nil {
			return nil, err
		}
		i := r.blame(incidents, after)
		switch {
		case i != nil:
			i.Repeats++
			by[i.Kind]++
		case r.attempt > 0:
			by[causeRetry]++
		default:
			by[causeNone]++
		}
	}
	return by, rows.Err()
}

// blame is the latest fault that hit the worker which had the event before, else
// the one that hit the new one. What leaves workers alive and well is blamed only
// where nothing else is to blame.
func (r repeat) blame(incidents []*incident, after time.Duration) *incident {
	for _, mild := range []bool{false, true} {
		for _, name := range []string{r.before, r.worker} {
			var last *incident
			for _, i := range incidents {
				hits := len(i.Targets) == 0 || slices.Contains(i.Targets, name)
				during := r.began.After(i.Began) && r.beforeAt.Before(i.Ended.Add(after))
				if hits && during && i.mild() == mild && (last == nil || i.Began.After(last.Began)) {
					last = i
				}
			}
			if last != nil {
				return last
			}
		}
	}
	return nil
}

// claims counts claims of buckets by why they were free to take.
func claims(ctx context.Context, d *database) (map[string]int, error) {
	rows, err := d.pool.Query(ctx, claimsSQL)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	by := map[string]int{}
	for rows.Next() {
		var reason string
		var n int
		if err := rows.Scan(&reason, &n); err != nil {
			return nil, err
		}
		by[reason] = n
	}
	return by, rows.Err()
}
