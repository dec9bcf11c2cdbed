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
// had.
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
	for _, c := range all {
		histories[c.Bucket] = append(histories[c.Bucket], porcupine.Operation{
			Input: c, Call: c.Began.UnixMicro(), Return: c.At.UnixMicro(),
		})
	}
	var cases []string
	for bucket, history := range histories {
		if got := porcupine.CheckOperationsTimeout(oneOwner, history, patienceWithHistory); got != porcupine.Ok {
			cases = append(cases, fmt.Sprintf("bucket %d, %d operations: %s", bucket, len(history), got))
		}
	}
	return cases, nil
}
