package lease_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/suisha-go/suisha/lease"
)

const twinShards = 3

// twinScripts are what both stores must answer alike. Workers are letters.
//
//	join a 2            a writes its presence, with weight 2
//	beat a 0 1          a beats and renews 0 and 1; shows all that came back
//	beat a giving 1     a beats, and gives up 1; leaving is another such word
//	claim a free 0 1    a claims what it expects to be free
//	claim a from b 0    a claims what it expects to be b's, and expired
//	claim a gone b 0    the same, with the expiry that was last seen
//	give a 0, release a 0 1, leave a
//	expire 0 1          the leases run out
//	gone a              a neighbour marks a
//	operator a          an operator takes all from a
var twinScripts = map[string]string{
	"free rows":            `claim a free 0 1; claim b free 0 1 2; beat a 0 1 2; beat b 0 1 2`,
	"own rows":             `claim a free 0 1 2; expire 0; claim a free 0 1; claim a from b 2; beat a 0 1 2; beat b`,
	"expired":              `claim a free 0 1 2; claim b from a 0; expire 0 1; claim b free 0; claim b from c 0; claim b from a 0 2; beat b; beat a 0 1 2; beat b`,
	"late renewal":         `join a 1; claim a free 0; expire 0; beat a 0; beat a 0; claim b from a 0; beat b`,
	"gone":                 `join a 1; claim a free 0 1; beat b; claim b gone a 0; gone a; beat b; claim b from a 0; claim b gone a 0; beat b; beat a 0 1; beat a; claim b gone a 1`,
	"gone and renewed":     `join a 1; claim a free 0; gone a; beat b; beat a 0; claim b gone a 0; gone a; claim b gone a 0; beat b; claim b gone a 0; beat a 0`,
	"gone and expired":     `join a 1; claim a free 0 1; gone a; expire 0; claim b from a 0 1; beat b; claim b gone a 0 1; beat b`,
	"gone and joined anew": `join a 1; claim a free 0; gone a; beat b; join a 2; claim b gone a 0; beat b`,
	"gone, no presence":    `claim a free 0; gone a; beat b; claim b gone a 0; beat b`,
	"release":              `claim a free 0 1; claim b free 2; release b 0 1 2; release a 1 2; release a 1; beat a 0 1; beat a`,
	"presence":             `join b 2; join a 1; join c 3; beat b; beat c giving 1 leaving; beat c; beat a; give a 0 2; give d 1; beat b`,
	"joined twice":         `join a 1; beat a giving 1 leaving; join a 2; beat b; beat a; beat b`,
	"never joined":         `beat a; claim a free 0; give a 0; leave a; beat a 0; join a 1; beat a 0`,
	"leave":                `join a 1; join b 1; claim a free 0; leave b; beat a; leave a; beat b; release a 0; leave a; beat b; beat a 0`,
	"leave and beat":       `join a 1; claim a free 0; leave a; beat a 0; beat a 0; leave a; expire 0; beat b; claim b from a 0; leave a; beat b`,
	"operator":             `join a 1; claim a free 0 1; claim b free 2; operator a; beat a 0 1; operator a; beat b 2; claim b free 0 1; beat a 0 1`,
}

func TestTwinAndPostgresAnswerAlike(t *testing.T) { //nolint:tparallel // the scripts share a database
	t.Parallel()
	pool := database(t, twinShards)
	for title, script := range twinScripts {
		t.Run(title, func(t *testing.T) {
			compareTwins(t, pool, script)
		})
	}
}

func TestTwinAndPostgresAnswerAlikeToRandomScripts(t *testing.T) {
	t.Parallel()
	pool := database(t, twinShards)
	worker := rapid.SampledFrom([]string{"a", "b", "c"})
	buckets := rapid.SampledFrom([]string{"0", "1", "2", "0 1", "1 2", "0 1 2"})
	rapid.Check(t, func(rt *rapid.T) {
		var commands []string
		for range rapid.IntRange(1, 14).Draw(rt, "commands") {
			form := rapid.SampledFrom([]string{
				"join $a 1", "beat $a $b", "beat $a $b", "beat $a giving $b", "beat $a leaving", "claim $a free $b",
				"claim $a from $c $b", "claim $a gone $c $b", "claim $a gone $c $b", "give $a $b", "release $a $b",
				"leave $a", "expire $b", "gone $a", "gone $a", "operator $a",
			}).Draw(rt, "form")
			commands = append(commands, strings.NewReplacer(
				"$a", worker.Draw(rt, "worker"), "$c", worker.Draw(rt, "other"), "$b", buckets.Draw(rt, "buckets"),
			).Replace(form))
		}
		compareTwins(rt, pool, strings.Join(commands, "; "))
	})
}

// compareTwins plays the script on both stores, each as new.
func compareTwins(t interface {
	Helper()
	Context() context.Context
	Fatalf(format string, args ...any)
}, pool *pgxpool.Pool, script string,
) {
	t.Helper()
	twin := &twinStage{ctx: t.Context(), table: newTable(twinShards)}
	twin.store = &line{table: twin.table}
	genuine := &twinStage{ctx: t.Context(), pool: pool, store: newStore(pool)}
	genuine.sql(`delete from suisha.workers`)
	genuine.sql(`update keiro.keiro_subscription_shards set owner_worker_id = null, lease_expires_at = null`)
	for command := range strings.SplitSeq(script, "; ") {
		twin.play(command)
		genuine.play(command)
		if twin.said != genuine.said || genuine.err != nil {
			t.Fatalf("%s\nafter %q the twin says\n%s\nPostgreSQL says\n%s\n%v", script, command, twin.said, genuine.said, genuine.err)
		}
	}
}

// twinStage is one of the two stores.
type twinStage struct {
	ctx   context.Context //nolint:containedctx // the test's
	store lease.Store
	table *table        // the twin's
	pool  *pgxpool.Pool // PostgreSQL's
	last  []lease.Row
	said  string
	err   error
}

func letter(s string) uuid.UUID { return id(s[0]) }

func (s *twinStage) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

func (s *twinStage) sql(statement string, args ...any) {
	_, err := s.pool.Exec(s.ctx, statement, args...)
	s.fail(err)
}

// play runs a command; said is what came back.
func (s *twinStage) play(command string) {
	words := strings.Fields(command)
	var got []int
	var err error
	switch buckets := numbers(words); words[0] {
	case "join":
		err = s.store.Join(s.ctx, lease.Presence{
			Subscription: name, Identity: lease.Identity{Worker: letter(words[1])}, TTL: ttl, Weight: buckets[0], Lock: 7,
		})
	case "beat":
		s.beat(words)
		return
	case "claim":
		c := lease.Claim{Subscription: name, Shards: twinShards, Worker: letter(words[1]), TTL: ttl}
		for _, b := range buckets {
			w := lease.Wanted{Bucket: b}
			if words[2] != "free" {
				w.Expected = letter(words[3])
			}
			if words[2] == "gone" && s.last != nil {
				w.Expiry = s.last[b].Expiry
			}
			c.Wanted = append(c.Wanted, w)
		}
		got, err = s.store.Claim(s.ctx, c)
	case "give":
		err = s.store.Give(s.ctx, lease.Giving{Subscription: name, Worker: letter(words[1]), Buckets: buckets})
	case "release":
		got, err = s.store.Release(s.ctx, lease.Release{Subscription: name, Shards: twinShards, Worker: letter(words[1]), Buckets: buckets})
	case "leave":
		err = s.store.Leave(s.ctx, name, letter(words[1]))
	default:
		s.meddle(words[0], words, buckets)
	}
	slices.Sort(got)
	s.fail(err)
	s.said = fmt.Sprint(got)
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
			w.gone = true
		}
	default:
		s.table.relinquish(letter(words[1]))
	}
}

// numbers are those among the words.
func numbers(words []string) []int {
	var out []int
	for _, w := range words {
		if n, err := strconv.Atoi(w); err == nil {
			out = append(out, n)
		}
	}
	return out
}
