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
}

type ownershipRow struct {
	Subscription string
	Bucket       int
	Owner        *uuid.UUID
	Read, Head   int64
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
		s.add(row, o.known)
	}
	return s, nil
}

// learn reads which id is which worker's.
func (o *observer) learn(ctx context.Context, numbers map[int]int) error {
	rows, err := o.pool.Query(ctx, membersSQL)
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

func (s *sample) add(row ownershipRow, known map[uuid.UUID]int) {
	if n := len(s.maps); n == 0 || s.maps[n-1].Subscription != row.Subscription {
		s.maps = append(s.maps, screen.Map{Subscription: row.Subscription})
	}
	m := &s.maps[len(s.maps)-1]
	b := screen.Bucket{Read: float64(row.Read) / float64(max(row.Head, 1))}
	if row.Owner != nil {
		if b.Owner = known[*row.Owner]; b.Owner > 0 {
			s.held[b.Owner] = append(s.held[b.Owner], bucket{row.Subscription, row.Bucket})
		}
	}
	m.Buckets = append(m.Buckets, b)
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
