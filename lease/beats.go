package lease

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/suisha-go/suisha/internal/callers"
)

// beats lets beats go together that come while another is under way.
type beats struct {
	turn chan struct{} // held while a statement runs

	mu      sync.Mutex
	waiting []*sharedBeat
}

// sharedBeat is a beat that waits for its statement. What came of it is written
// before done is closed.
type sharedBeat struct {
	Beat
	ctx  context.Context //nolint:containedctx // it lives as long as the call that it belongs to
	done chan struct{}
	seen Snapshot
	err  error
}

// Beat implements [Store]. Whoever finds nothing under way sends all that wait, and
// stays until the last of their contexts ends; the others leave with their own. A beat
// that nobody waits for any more renews what it was asked to, which is no harm: only
// who hears of it trusts the lease for longer.
func (p *Postgres) Beat(ctx context.Context, b Beat) (Snapshot, error) {
	s := &sharedBeat{Beat: b, ctx: ctx, done: make(chan struct{})}
	p.beats.add(s)
	select {
	case p.beats.turn <- struct{}{}:
		if !s.answered() {
			p.sendBeats(p.beats.take())
		}
		<-p.beats.turn
	case <-s.done:
	case <-ctx.Done():
		p.beats.remove(s)
		return Snapshot{}, context.Cause(ctx)
	}
	return s.seen, s.err
}

// answered: the statement before took it along.
func (s *sharedBeat) answered() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

func (g *beats) add(s *sharedBeat) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = append(g.waiting, s)
}

// remove takes a beat back whose caller is gone, unless it is under way.
func (g *beats) remove(s *sharedBeat) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = slices.DeleteFunc(g.waiting, func(o *sharedBeat) bool { return o == s })
}

func (g *beats) take() []*sharedBeat {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := g.waiting
	g.waiting = nil
	return all
}

// sendBeats sends beats in one statement. An error is everybody's.
func (p *Postgres) sendBeats(all []*sharedBeat) {
	ctxs := make([]context.Context, len(all))
	for i, s := range all {
		ctxs[i] = s.ctx //nolint:fatcontext // each is another one
	}
	ctx, cancel := callers.UntilLast(ctxs)
	defer cancel()
	seen, err := p.runBeats(ctx, all)
	for i, s := range all {
		if s.err = err; err == nil {
			s.seen = seen[i]
		}
		close(s.done)
	}
}

// beatRequest is one of the beats that beat.sql is given.
type beatRequest struct {
	Beat         int       `json:"beat"`
	Subscription string    `json:"subscription"`
	Worker       uuid.UUID `json:"worker"`
	Shards       int       `json:"shards"`
	TTL          int64     `json:"ttl"`
	Weight       int       `json:"weight"`
	Lock         int64     `json:"lock"`
	Leaving      bool      `json:"leaving"`
	Giving       []int     `json:"giving"`
	Renew        []int     `json:"renew"`
}

func (p *Postgres) runBeats(ctx context.Context, all []*sharedBeat) ([]Snapshot, error) {
	requests := make([]beatRequest, len(all))
	for i, b := range all {
		requests[i] = beatRequest{
			Beat: i, Subscription: b.Subscription, Worker: b.Worker, Shards: b.Shards, TTL: b.TTL.Milliseconds(),
			Weight: b.Weight, Lock: b.Lock, Leaving: b.Leaving, Giving: list(b.Giving), Renew: list(b.Renew),
		}
	}
	text, err := json.Marshal(requests)
	if err != nil {
		return nil, fmt.Errorf("lease: beats: %w", err)
	}
	var seen []Snapshot
	err = p.run.Do(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, beatSQL, pgx.NamedArgs{"beats": string(text)})
		if err != nil {
			return err
		}
		seen, err = pgx.CollectRows(rows, readSnapshot)
		return err
	})
	if err == nil && len(seen) != len(all) {
		err = fmt.Errorf("lease: %d answers to %d beats", len(seen), len(all))
	}
	return seen, typed(err)
}

func readSnapshot(row pgx.CollectableRow) (Snapshot, error) {
	var (
		beat     int
		s        Snapshot
		workers  string
		buckets  []int
		owners   []uuid.UUID
		expiries []int64
		lefts    []int64
	)
	err := row.Scan(&beat, &s.Joined, &s.Renewed, &workers, &buckets, &owners, &expiries, &lefts, &s.Foreign)
	if err != nil {
		return s, err
	}
	if s.Workers, err = readWorkers(workers); err != nil {
		return s, err
	}
	s.Rows = make([]Row, len(buckets))
	for i := range buckets {
		s.Rows[i] = Row{Bucket: buckets[i], Owner: owners[i], Expiry: expiries[i], Left: microseconds(lefts[i])}
	}
	return s, nil
}

func readWorkers(text string) ([]Worker, error) {
	var rows []struct {
		ID            uuid.UUID
		Weight        int
		Leaving, Gone bool
		Lock          int64 `json:",string"`
		Giving        []int
		Left, Age     int64
	}
	if err := json.Unmarshal([]byte(text), &rows); err != nil {
		return nil, fmt.Errorf("lease: presence: %w", err)
	}
	workers := make([]Worker, len(rows))
	for i, r := range rows {
		workers[i] = Worker{
			ID: r.ID, Weight: r.Weight, Leaving: r.Leaving, Lock: r.Lock, Gone: r.Gone,
			Giving: r.Giving, Left: microseconds(r.Left), Age: microseconds(r.Age),
		}
	}
	return workers, nil
}
