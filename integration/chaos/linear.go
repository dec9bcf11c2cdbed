//go:build unix

package main

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/jackc/pgx/v5"
)

//go:embed sql/history.sql
var historySQL string

// patienceWithHistory bounds the search for an order of one bucket's history.
const patienceWithHistory = 30 * time.Second

// change is what happened to a bucket: somebody wrote under its lease, or the owner
// of the lease changed. Owners are workers, writers the names that they run under.
type change struct {
	Bucket         int
	Write          bool
	Writer         string
	From, FromName string // empty: nobody
	Free           bool   // the lease of From had run out, or it was marked gone
	To, ToName     string
	Began, At      time.Time
}

// holder is who owns a bucket; the zero value is nobody.
type holder struct{ worker, name string }

// oneOwner is the lease of a bucket as a single owner at a time has it. It knows
// nothing of the order in which the server says that things happened: an order must
// exist, within the time that each of them took.
var oneOwner = porcupine.Model{
	Init: func() any { return holder{} },
	Step: func(state, input, _ any) (bool, any) {
		h, _ := state.(holder)
		c, _ := input.(change)
		if c.Write {
			return h.name == c.Writer, h
		}
		return c.by(h), holder{c.To, c.ToName}
	},
}

// by tells whether the owner may change as it did: it gave the lease back, or
// another one took what was free.
func (c change) by(h holder) bool {
	switch {
	case h.worker != c.From:
		return false
	case c.To == "":
		return c.Writer == c.FromName
	default:
		return c.Writer == c.ToName && (c.From == "" || c.Free)
	}
}

// impossible lists the buckets whose history no single owner at a time could have
// had, and those that take too long to tell. What is searched is kept small: of writes
// of one worker with nothing else in between, the first and the last.
func impossible(ctx context.Context, d *database) ([]string, error) {
	rows, err := d.pool.Query(ctx, historySQL)
	if err != nil {
		return nil, err
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[change])
	if err != nil {
		return nil, err
	}
	histories := map[int][]porcupine.Operation{}
	for _, c := range telling(all) {
		histories[c.Bucket] = append(histories[c.Bucket], porcupine.Operation{
			Input: c, Call: c.Began.UnixMicro(), Return: c.At.UnixMicro(),
		})
	}
	var cases []string
	for bucket, history := range histories {
		switch porcupine.CheckOperationsTimeout(oneOwner, history, patienceWithHistory) {
		case porcupine.Ok:
		case porcupine.Illegal:
			cases = append(cases, fmt.Sprintf("bucket %d, %d operations: none", bucket, len(history)))
		case porcupine.Unknown:
			cases = append(cases, fmt.Sprintf("bucket %d, %d operations: undecided after %s", bucket, len(history), patienceWithHistory))
		}
	}
	return cases, nil
}

// telling leaves out writes that say nothing: those between two others of the same
// writer that lie wholly before and after them, with no change meanwhile.
func telling(all []change) []change {
	var kept []change
	for i, c := range all {
		if c.Write && i > 0 && i+1 < len(all) && sameRun(all[i-1], c) && sameRun(c, all[i+1]) {
			continue
		}
		kept = append(kept, c)
	}
	return kept
}

// sameRun: b is a write of the writer that a is one of, and begins after it.
func sameRun(a, b change) bool {
	return a.Write && b.Write && a.Bucket == b.Bucket && a.Writer == b.Writer && !b.Began.Before(a.At)
}
