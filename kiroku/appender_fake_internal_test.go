package kiroku

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// fakeStore takes every append. It tells what was sent together.
type fakeStore struct {
	// before runs before a statement is answered, outside of the lock.
	before func(ctx context.Context, statement int) error

	mu       sync.Mutex
	sent     []int // how many appends each statement had
	versions map[string]int64
	head     int64
}

var errNotFaked = errors.New("not faked")

func (*fakeStore) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, errNotFaked
}

func (*fakeStore) QueryRow(context.Context, string, ...any) pgx.Row { return nil }

func (f *fakeStore) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	calls, columns := []int64{0}, 10
	var names []string
	var counts []int64
	switch sql {
	case appendOneSQL:
		names, counts = []string{args[0].(string)}, []int64{args[3].(int64)}
		columns = 3
	case appendSQL:
		names, counts = args[0].([]string), args[3].([]int64)
		columns = 8
	default:
		calls, names, counts = args[0].([]int64), args[1].([]string), args[4].([]int64)
	}
	f.mu.Lock()
	f.sent = append(f.sent, int(calls[len(calls)-1])+1)
	statement := len(f.sent)
	f.mu.Unlock()
	if f.before != nil {
		if err := f.before(ctx, statement); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.versions == nil {
		f.versions = map[string]int64{}
	}
	rows := &fakeRows{}
	for i, name := range names {
		before := f.versions[name]
		f.versions[name] += counts[i]
		f.head += counts[i]
		row := []any{true, before > 0, false, before, false, int64(2), f.versions[name], f.head, false, false}
		if columns == 3 {
			row = row[5:]
		}
		row = row[:columns]
		rows.rows = append(rows.rows, row)
	}
	return rows, nil
}

// statements is what was sent so far.
func (f *fakeStore) statements() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fmt.Sprint(f.sent)
}

func (f *fakeStore) total() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.head
}

type fakeRows struct {
	pgx.Rows
	rows [][]any
	row  []any
}

func (r *fakeRows) Next() bool {
	if len(r.rows) == 0 {
		return false
	}
	r.row, r.rows = r.rows[0], r.rows[1:]
	return true
}

func (r *fakeRows) Scan(dest ...any) error {
	for i, d := range dest {
		switch d := d.(type) {
		case *bool:
			*d, _ = r.row[i].(bool)
		case *int64:
			*d, _ = r.row[i].(int64)
		default:
			return fmt.Errorf("%T: %w", d, errNotFaked)
		}
	}
	return nil
}

func (*fakeRows) Close()     {}
func (*fakeRows) Err() error { return nil }

func one(stream string) StreamAppend {
	return StreamAppend{Stream: stream, Events: []Event{{Type: "T", Data: []byte(`1`)}}}
}

// gate holds up the statements that it is asked to.
type gate struct{ open map[int]chan error }

func newGate(statements ...int) *gate {
	g := &gate{open: map[int]chan error{}}
	for _, n := range statements {
		g.open[n] = make(chan error, 1)
	}
	return g
}

func (g *gate) pass(ctx context.Context, statement int) error {
	ch, ok := g.open[statement]
	if !ok {
		return nil
	}
	select {
	case err := <-ch:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// calls are appends of callers of their own.
type calls struct {
	a  *Appender
	wg sync.WaitGroup
	mu sync.Mutex
	// errs are errNotFaked for those that have not returned.
	errs []error
}

func (c *calls) start(ctx context.Context, appends ...StreamAppend) (result int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errs = append(c.errs, errNotFaked)
	i := len(c.errs) - 1
	c.wg.Go(func() {
		var err error
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("panicked: %v", r)
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			c.errs[i] = err
		}()
		err = errVanished
		_, err = c.a.Append(ctx, appends...)
	})
	return i
}

// wait returns when all calls have, and nothing is under way.
func (c *calls) wait() {
	c.wg.Wait()
	c.a.Wait()
}

func (c *calls) err(i int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.errs[i]
}
