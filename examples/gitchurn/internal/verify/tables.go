package verify

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/suisha-go/suisha/kiroku"
)

var (
	//go:embed sql/churn.sql
	churnSQL string
	//go:embed sql/orders.sql
	ordersSQL string
	//go:embed sql/calls.sql
	callsSQL string
	//go:embed sql/failover.sql
	failoverSQL string
)

// Comparison is a projected table held against what it should be.
type Comparison struct {
	// Rows and Events are what there should be.
	Rows, Events int64
	// Lost counts the events that should be in the table and are not.
	Lost int64
	// BrokenRows counts rows that are missing, wrong or too many.
	BrokenRows int64
	// Broken names some of them, with what is wrong.
	Broken []string
}

// mostNamed bounds Broken.
const mostNamed = 20

type churnRow struct {
	Path                    string
	Commits, Added, Deleted int64
}

// Files compares the projected table with what the history says, row by row.
func Files(ctx context.Context, db kiroku.DB, expected map[string]Totals) (Comparison, error) {
	rows, err := db.Query(ctx, churnSQL)
	if err != nil {
		return Comparison{}, fmt.Errorf("verify: churn: %w", err)
	}
	table, err := pgx.CollectRows(rows, pgx.RowToStructByPos[churnRow])
	if err != nil {
		return Comparison{}, fmt.Errorf("verify: churn: %w", err)
	}
	c := Comparison{Rows: int64(len(expected))}
	seen := make(map[string]bool, len(table))
	for _, row := range table {
		got := Totals{Commits: row.Commits, Added: row.Added, Deleted: row.Deleted}
		path, err := url.PathUnescape(row.Path)
		want, known := expected[path]
		switch {
		case err != nil || !known:
			c.broken("%q is in no commit", row.Path)
		case seen[path]:
			c.broken("%q has two rows", row.Path)
		case got != want:
			c.broken("%q: git says %+v, the table says %+v", row.Path, want, got)
			c.Lost += max(want.Commits-got.Commits, 0)
		}
		seen[path] = true
	}
	for path, want := range expected {
		c.Events += want.Commits
		if !seen[path] {
			c.broken("%q is missing: git says %+v", path, want)
			c.Lost += want.Commits
		}
	}
	slices.Sort(c.Broken)
	return c, nil
}

func (c *Comparison) broken(format string, args ...any) {
	c.BrokenRows++
	if len(c.Broken) < mostNamed {
		c.Broken = append(c.Broken, fmt.Sprintf(format, args...))
	}
}

// Orders compares the table of generated orders with the rule they follow.
func Orders(ctx context.Context, db kiroku.DB, orders int) (Comparison, error) {
	var c Comparison
	err := db.QueryRow(ctx, ordersSQL, pgx.NamedArgs{"orders": orders}).Scan(&c.Rows, &c.Events, &c.Lost, &c.Broken, &c.BrokenRows)
	if err != nil {
		return Comparison{}, fmt.Errorf("verify: orders: %w", err)
	}
	return c, nil
}

// Calls is what the calls of the handlers say.
type Calls struct {
	// OutOfOrder counts events that came before an earlier event of their stream.
	OutOfOrder int64
	// Repeated counts calls beyond the first for one event. Explained are those
	// of events that the killed worker had handled and not yet checkpointed.
	Repeated, Explained int64
}

// ReadCalls judges all calls.
func ReadCalls(ctx context.Context, db kiroku.DB, k Kill) (Calls, error) {
	if err := k.check(); err != nil {
		return Calls{}, err
	}
	var c Calls
	err := db.QueryRow(ctx, callsSQL, k.args()).Scan(&c.OutOfOrder, &c.Repeated, &c.Explained)
	if err != nil {
		return Calls{}, fmt.Errorf("verify: calls: %w", err)
	}
	return c, nil
}

// Kill says which worker was killed, when by the database's clock, and which
// buckets it had. The zero value says that none was.
type Kill struct {
	Worker string
	At     time.Time
	// Categories, Buckets and Checkpoints name the buckets and what the worker
	// left as their checkpoints, side by side.
	Categories  []string
	Buckets     []int
	Checkpoints []int64
}

var errUneven = errors.New("verify: the lists of a kill differ in length")

func (k Kill) check() error {
	if n := len(k.Buckets); len(k.Categories) != n || len(k.Checkpoints) != n {
		return errUneven
	}
	return nil
}

func (k Kill) args() pgx.NamedArgs {
	return pgx.NamedArgs{
		"killed": k.Worker, "killed_at": k.At,
		"categories": k.Categories, "buckets": k.Buckets, "checkpoints": k.Checkpoints,
	}
}

// Failover is the time from a kill to the first call elsewhere in the slowest
// of its buckets, and the number of buckets that still had events.
func Failover(ctx context.Context, db kiroku.DB, k Kill) (time.Duration, int, error) {
	if err := k.check(); err != nil {
		return 0, 0, err
	}
	var seconds float64
	var buckets int
	if err := db.QueryRow(ctx, failoverSQL, k.args()).Scan(&seconds, &buckets); err != nil {
		return 0, 0, fmt.Errorf("verify: failover: %w", err)
	}
	return time.Duration(seconds * float64(time.Second)), buckets, nil
}
