package lease_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/lease"
)

// grown is a database whose server is not so young that it marks nobody.
func grown(t *testing.T, shards int) *pgxpool.Pool {
	t.Helper()
	pool := database(t, shards)
	exec(t, pool, `select pg_sleep(greatest(0, 3.2 - extract(epoch from clock_timestamp() - pg_postmaster_start_time())))`)
	return pool
}

// perform plays a command, while others hold locks if it says so.
func (s *twinStage) perform(command string) {
	locks, command, locked := strings.Cut(command, ": ")
	if !locked {
		s.play(locks)
		return
	}
	words := strings.Fields(locks)
	unlock := s.lock(words, numbers(words))
	s.play(command)
	unlock()
}

// lock locks what is named until the returned function is called.
func (s *twinStage) lock(words []string, n []int) (unlock func()) {
	if s.pool == nil {
		switch words[0] {
		case "lock":
			for _, b := range n {
				s.table.locked[b] = true
			}
		case "shut":
			s.table.shut[letter(words[1])] = true
		default:
			s.held = true
		}
		return func() { s.table.unlock(); s.held = false }
	}
	tx, err := s.pool.Begin(s.ctx)
	if err != nil {
		s.fail(err)
		return func() {}
	}
	switch words[0] {
	case "lock":
		_, err = tx.Exec(s.ctx, `select from keiro.keiro_subscription_shards where bucket = any($1) for update`, n)
	case "shut":
		_, err = tx.Exec(s.ctx, `select from suisha.workers where worker = $1 for update`, letter(words[1]))
	default:
		_, err = tx.Exec(s.ctx, `select pg_advisory_xact_lock($1)`, n[0])
	}
	s.fail(err)
	return func() { s.fail(tx.Rollback(s.ctx)) }
}

// watching runs a statement of the watch.
func (s *twinStage) watching(file string, args ...any) pgx.Rows {
	text, err := os.ReadFile("sql/" + file)
	s.fail(err)
	rows, err := s.pool.Query(s.ctx, string(text), args...)
	s.fail(err)
	return rows
}

// suspect takes note of who holds the lock, and when each last beat.
func (s *twinStage) suspect(lock int64) string {
	if s.pool == nil {
		s.suspects = s.table.suspects(lock)
		return names(slices.Collect(maps.Keys(s.suspects)))
	}
	s.heartbeats = map[uuid.UUID]int64{}
	var subscription string
	var worker uuid.UUID
	var heartbeat int64
	_, err := pgx.ForEachRow(s.watching("watch_suspects.sql", lock), []any{&subscription, &worker, &heartbeat}, func() error {
		s.heartbeats[worker] = heartbeat
		return nil
	})
	s.fail(err)
	return names(slices.Collect(maps.Keys(s.heartbeats)))
}

// mark marks the suspects, if they deserve it.
func (s *twinStage) mark(lock int64) string {
	if s.pool == nil {
		return names(s.table.mark(lock, s.suspects, !s.held))
	}
	var subscriptions, workers []string
	var heartbeats []int64
	for id, at := range s.heartbeats {
		subscriptions, workers, heartbeats = append(subscriptions, name), append(workers, id.String()), append(heartbeats, at)
	}
	var marked []uuid.UUID
	var worker uuid.UUID
	var told int
	_, err := pgx.ForEachRow(s.watching("watch_mark.sql", lock, subscriptions, workers, heartbeats), []any{&worker, &told}, func() error {
		marked = append(marked, worker)
		return nil
	})
	s.fail(err)
	return names(marked)
}

// names are the letters of workers, in order.
func names(ids []uuid.UUID) string {
	var out []byte
	for _, id := range ids {
		out = append(out, id[0])
	}
	slices.Sort(out)
	return string(out)
}

// beat shows what a beat brings back, with times told only as past or to come.
func (s *twinStage) beat(words []string) {
	b := lease.Beat{Subscription: name, Shards: twinShards, Worker: letter(words[1]), TTL: ttl, Weight: 5, Lock: 9}
	b.Leaving = words[len(words)-1] == "leaving"
	if slices.Contains(words, "giving") {
		b.Giving = numbers(words)
	} else {
		b.Renew = numbers(words)
	}
	got, err := s.store.Beat(s.ctx, b)
	s.fail(err)
	s.last = got.Rows
	var out strings.Builder
	fmt.Fprintf(&out, "joined %v, renewed %v\n", got.Joined, got.Renewed)
	for _, w := range got.Workers {
		fmt.Fprintf(&out, "  %c: weight %d, leaving %v, lock %d, giving %v, gone %v, left %v, age %v\n",
			w.ID[0], w.Weight, w.Leaving, w.Lock, w.Giving, w.Gone, w.Left > ttl/2, w.Age > ttl/2)
	}
	for _, r := range got.Rows {
		fmt.Fprintf(&out, "  %d: %c, expiry %v, left %v\n", r.Bucket, r.Owner[0], r.Expiry != 0, r.Left.Round(ttl))
	}
	s.said = out.String()
}

// meddle does what is not a Store's.
func (s *twinStage) meddle(what string, words []string, buckets []int) {
	switch {
	case s.pool != nil && what == "expire":
		s.sql(`update keiro.keiro_subscription_shards set lease_expires_at = clock_timestamp() - interval '1 minute'
			where bucket = any($1) and owner_worker_id is not null`, buckets)
	case s.pool != nil && what == "gone":
		s.sql(`update suisha.workers set gone_at = clock_timestamp() where worker = $1`, letter(words[1]))
	case s.pool != nil:
		_, err := lease.Relinquish(s.ctx, s.pool, name, letter(words[1]), false)
		s.fail(err)
	case what == "expire":
		for _, b := range buckets {
			if s.table.rows[b].owner != uuid.Nil {
				s.table.rows[b].expiry = time.Now().Add(-time.Minute)
			}
		}
	case what == "gone":
		if w := s.table.workers[letter(words[1])]; w != nil {
			w.gone, w.marked = true, time.Now()
		}
	default:
		s.table.relinquish(letter(words[1]))
	}
}
