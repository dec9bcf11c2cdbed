package main

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/examples/gitchurn/internal/screen"
)

var (
	//go:embed sql/extents.sql
	extentsSQL string
	//go:embed sql/ownership.sql
	ownershipSQL string
	//go:embed sql/members.sql
	membersSQL string
	//go:embed sql/progress.sql
	progressSQL string
)

// sample is what the database says at one moment.
type sample struct {
	done int64
	maps []screen.Map
	held map[int][]bucket // by the number of the worker that owns them
}

// bucket is one bucket of one subscription.
type bucket struct {
	subscription string
	number       int
}

// observer takes samples. It is used by one goroutine.
type observer struct {
	pool  *pgxpool.Pool
	known map[uuid.UUID]int // numbers of the workers; ids that are gone stay

	extents map[bucket]extent
}

// extent is where in the log the events of a bucket begin and end.
type extent struct{ first, last int64 }

// done is how much of it a checkpoint has behind it, 0 to 1.
func (e extent) done(checkpoint int64) float64 {
	return float64(min(max(checkpoint-e.first+1, 0), e.last-e.first+1)) / float64(e.last-e.first+1)
}

// newObserver reads where the events of each bucket are; all must be appended.
func newObserver(ctx context.Context, pool *pgxpool.Pool, buckets int) (*observer, error) {
	o := &observer{pool: pool, known: map[uuid.UUID]int{}, extents: map[bucket]extent{}}
	subscriptions := map[string]string{}
	for subscription, category := range categories {
		subscriptions[category] = subscription
	}
	rows, err := pool.Query(ctx, extentsSQL, //nolint:rowserrcheck // ForEachRow does
		pgx.NamedArgs{"buckets": buckets})
	if err != nil {
		return nil, fmt.Errorf("extents: %w", err)
	}
	var category string
	var number int
	var e extent
	_, err = pgx.ForEachRow(rows, []any{&category, &number, &e.first, &e.last}, func() error {
		o.extents[bucket{subscriptions[category], number}] = e
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("extents: %w", err)
	}
	return o, nil
}

type ownershipRow struct {
	Subscription string
	Bucket       int
	Owner        *uuid.UUID
	Checkpoint   int64
}

// look takes a sample. numbers are those of the workers, by process id.
func (o *observer) look(ctx context.Context, numbers map[int]int) (sample, error) {
	s := sample{held: map[int][]bucket{}}
	if err := o.pool.QueryRow(ctx, progressSQL).Scan(&s.done); err != nil {
		return s, fmt.Errorf("progress: %w", err)
	}
	if err := o.learn(ctx, numbers); err != nil {
		return s, err
	}
	rows, err := o.pool.Query(ctx, ownershipSQL)
	if err != nil {
		return s, fmt.Errorf("ownership: %w", err)
	}
	owned, err := pgx.CollectRows(rows, pgx.RowToStructByPos[ownershipRow])
	if err != nil {
		return s, fmt.Errorf("ownership: %w", err)
	}
	for _, row := range owned {
		s.add(row, o)
	}
	return s, nil
}

// learn reads which id is which worker's.
func (o *observer) learn(ctx context.Context, numbers map[int]int) error {
	rows, err := o.pool.Query(ctx, membersSQL) //nolint:rowserrcheck // ForEachRow does
	if err != nil {
		return fmt.Errorf("members: %w", err)
	}
	var id uuid.UUID
	var pid int
	_, err = pgx.ForEachRow(rows, []any{&id, &pid}, func() error {
		if n, ok := numbers[pid]; ok {
			o.known[id] = n
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("members: %w", err)
	}
	return nil
}

func (s *sample) add(row ownershipRow, o *observer) {
	if n := len(s.maps); n == 0 || s.maps[n-1].Subscription != row.Subscription {
		s.maps = append(s.maps, screen.Map{Subscription: row.Subscription})
	}
	m := &s.maps[len(s.maps)-1]
	name := bucket{row.Subscription, row.Bucket}
	b := screen.Bucket{Done: o.extents[name].done(row.Checkpoint)}
	if row.Owner != nil {
		if b.Owner = o.known[*row.Owner]; b.Owner > 0 {
			s.held[b.Owner] = append(s.held[b.Owner], name)
		}
	}
	m.Buckets = append(m.Buckets, b)
}

// settled reports whether every bucket has all its events behind it.
func (s *sample) settled() bool {
	for _, m := range s.maps {
		for _, b := range m.Buckets {
			if b.Done < 1 {
				return false
			}
		}
	}
	return true
}

// owned is how many buckets each worker has.
func (s *sample) owned() map[int]int {
	out := map[int]int{}
	for number, buckets := range s.held {
		out[number] = len(buckets)
	}
	return out
}

// victim is the number of the worker to kill: the one with most buckets, of
// equals the one in the middle. It is zero while nobody has any.
func (s *sample) victim(workers int) int {
	best, middle := 0, (workers+1)/2
	for n := 1; n <= workers; n++ {
		switch have, most := len(s.held[n]), len(s.held[best]); {
		case have > most, have == most && have > 0 && n == middle:
			best = n
		}
	}
	return best
}

// adopted reports whether every one of the buckets is owned, and by none of the
// killed worker's name.
func (s *sample) adopted(buckets []bucket, killed int) bool {
	owners := map[bucket]int{}
	for number, held := range s.held {
		for _, b := range held {
			owners[b] = number
		}
	}
	for _, b := range buckets {
		if n := owners[b]; n == 0 || n == killed {
			return false
		}
	}
	return true
}

// rate is events per second over the last seconds.
type rate struct {
	at   []time.Time
	done []int64
}

const rateWindow = 2 * time.Second

func (r *rate) add(now time.Time, done int64) float64 {
	r.at, r.done = append(r.at, now), append(r.done, done)
	for len(r.at) > 2 && now.Sub(r.at[0]) > rateWindow {
		r.at, r.done = r.at[1:], r.done[1:]
	}
	span := now.Sub(r.at[0]).Seconds()
	if span <= 0 {
		return 0
	}
	return float64(done-r.done[0]) / span
}
