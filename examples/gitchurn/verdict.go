package main

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/suisha-go/suisha/examples/gitchurn/internal/screen"
	"github.com/suisha-go/suisha/examples/gitchurn/internal/verify"
)

var (
	//go:embed sql/hottest.sql
	hottestSQL string
	//go:embed sql/dead_letters.sql
	deadLettersSQL string
)

// result is all that the verdict rests on.
type result struct {
	files, orders verify.Comparison
	calls         verify.Calls

	killed   string // name of the killed worker; empty when none was
	held     int    // buckets that it had
	failover time.Duration
	moved    int // of its buckets, those that had events left

	deadLetters int64
	deadReason  string // of one of them

	worked time.Duration
}

// judge reads everything again, says what it finds, and reports whether every
// promise was kept.
func (d *demo) judge(ctx context.Context) (bool, error) {
	rows, err := d.pool.Query(ctx, hottestSQL)
	if err != nil {
		return false, fmt.Errorf("hottest files: %w", err)
	}
	files, err := pgx.CollectRows(rows, pgx.RowToStructByPos[screen.File])
	if err != nil {
		return false, fmt.Errorf("hottest files: %w", err)
	}
	if len(files) > 0 {
		d.screen.Say(screen.Hottest(files, d.style())...)
	}
	r, err := d.result(ctx)
	if err != nil {
		return false, err
	}
	d.screen.Say(screen.Verdict(r.findings(), d.style())...)
	return r.kept(), nil
}

func (d *demo) result(ctx context.Context) (result, error) {
	r := result{killed: d.kill.Worker, held: len(d.kill.Buckets), worked: d.worked}
	expected, err := verify.Expected(ctx, d.repo.Dir, d.repo.Head, d.options.limit)
	if err != nil {
		return r, err
	}
	if r.files, err = verify.Files(ctx, d.pool, expected); err != nil {
		return r, err
	}
	if r.orders, err = verify.Orders(ctx, d.pool, d.orders); err != nil {
		return r, err
	}
	if r.calls, err = verify.ReadCalls(ctx, d.pool, d.kill); err != nil {
		return r, err
	}
	if r.failover, r.moved, err = verify.Failover(ctx, d.pool, d.kill); err != nil {
		return r, err
	}
	if err := d.pool.QueryRow(ctx, deadLettersSQL).Scan(&r.deadLetters, &r.deadReason); err != nil {
		return r, fmt.Errorf("dead letters: %w", err)
	}
	return r, nil
}

// kept reports whether the table is what the history says and nothing came out
// of order. Repeats are allowed: a delivery is at least once.
func (r result) kept() bool {
	return r.lost() == 0 && r.files.BrokenRows+r.orders.BrokenRows == 0 && r.calls.OutOfOrder == 0
}

func (r result) lost() int64   { return r.files.Lost + r.orders.Lost }
func (r result) events() int64 { return r.files.Events + r.orders.Events }

func (r result) findings() []screen.Finding {
	return []screen.Finding{
		{Name: "events", Value: screen.Count(r.events()), Notes: []string{r.kinds()}},
		r.lostFinding(),
		{
			Name: "out of order", Value: screen.Count(r.calls.OutOfOrder), Bad: r.calls.OutOfOrder > 0,
			Notes: []string{"within a stream, by the first call for each event"},
		},
		{Name: "repeated", Value: screen.Count(r.calls.Repeated), Notes: r.repeats()},
		r.failoverFinding(),
		{
			Name: "throughput", Value: screen.Count(int64(float64(r.events())/max(r.worked.Seconds(), 0.001))) + "/s",
			Notes: []string{fmt.Sprintf("%s in %s, the failover included", screen.Counted(r.events(), "event", "events"), screen.Seconds(r.worked))},
		},
	}
}

func (r result) kinds() string {
	if r.orders.Rows == 0 {
		return "one for each file that each commit changed"
	}
	return screen.Counted(r.files.Events, "file change", "file changes") + " and " +
		screen.Counted(r.orders.Events, "order line", "order lines")
}

func (r result) lostFinding() screen.Finding {
	f := screen.Finding{Name: "lost", Value: screen.Count(r.lost()), Bad: r.lost() > 0}
	if r.files.Rows > 0 {
		f.Notes = append(f.Notes, screen.Counted(r.files.Rows, "file", "files")+" against git log --numstat, read again")
	}
	if r.orders.Rows > 0 {
		f.Notes = append(f.Notes, screen.Counted(r.orders.Rows, "order", "orders")+" against the rule that made them")
	}
	if broken := r.files.BrokenRows + r.orders.BrokenRows; broken > 0 {
		f.Bad = true
		f.Notes = append(f.Notes, screen.Counted(broken, "row is", "rows are")+" wrong:")
		f.Notes = append(f.Notes, first(slices.Concat(r.files.Broken, r.orders.Broken), mostNamed)...)
	}
	if r.deadLetters > 0 {
		f.Notes = append(f.Notes, screen.Counted(r.deadLetters, "event was", "events were")+" given up: "+r.deadReason)
	}
	return f
}

// mostNamed is how many broken rows the verdict names.
const mostNamed = 5

func first(s []string, n int) []string { return s[:min(n, len(s))] }

func (r result) repeats() []string {
	all, explained := r.calls.Repeated, r.calls.Explained
	switch all {
	case 0:
		return []string{"each event was handled exactly once"}
	case explained:
		return []string{"not yet checkpointed by " + r.killed + "; counted once"}
	default:
		return []string{
			screen.Count(explained) + " not yet checkpointed by the killed worker",
			screen.Count(all-explained) + " where a lease or a drain ran out: a busy machine",
			"all of them counted once",
		}
	}
}

func (r result) failoverFinding() screen.Finding {
	f := screen.Finding{Name: "failover", Value: screen.Seconds(r.failover)}
	switch {
	case r.killed == "":
		f.Value, f.Notes = "none", []string{"all was done before a worker could be killed"}
	case r.moved == 0:
		f.Value, f.Notes = "none", []string{fmt.Sprintf("the %s of %s had nothing left to do", screen.Counted(int64(r.held), "bucket", "buckets"), r.killed)}
	default:
		f.Notes = []string{fmt.Sprintf("from SIGKILL until the %d of its %s with work left ran elsewhere", r.moved, screen.Counted(int64(r.held), "bucket", "buckets"))}
	}
	return f
}
