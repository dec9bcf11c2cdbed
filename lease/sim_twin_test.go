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
//	gone a              a is marked, whatever it does
//	suspect 9           a neighbour looks who holds the lock 9
//	mark 9              it marks those, if they have not beaten since
//	operator a          an operator takes all from a
//	lock 0 1: …         the rest, while somebody has the rows locked
//	shut a: …           the rest, while somebody has a's presence locked
//	hold 9: …           the rest, while a session holds the lock 9
var twinScripts = map[string]string{
	"free rows":            `claim a free 0 1; claim b free 0 1 2; beat a 0 1 2; beat b 0 1 2`,
	"own rows":             `claim a free 0 1 2; expire 0; claim a free 0 1; claim a from b 2; beat a 0 1 2; beat b`,
	"expired":              `claim a free 0 1 2; claim b from a 0; expire 0 1; claim b free 0; claim b from c 0; claim b from a 0 2; beat b; beat a 0 1 2; beat b`,
	"late renewal":         `join a 1; claim a free 0; expire 0; beat a 0; beat a 0; claim b from a 0; beat b`,
	"gone":                 `join a 1; claim a free 0 1; beat b; claim b gone a 0; gone a; beat b; claim b from a 0; claim b gone a 0; beat b; beat a 0 1; beat a; claim b gone a 1`,
	"gone and renewed":     `join a 1; claim a free 0; gone a; beat b; beat a 0; claim b gone a 0; gone a; claim b gone a 0; beat b; claim b gone a 0; beat a 0`,
	"gone and expired":     `join a 1; claim a free 0 1; gone a; expire 0; claim b from a 0 1; beat b; claim b gone a 0 1; beat b`,
	"gone and joined anew": `join a 1; claim a free 0; gone a; beat b; join a 2; claim b gone a 0; beat b`,
	"gone, then claimed":   `join a 1; gone a; claim a free 0 1; beat b; claim b gone a 0; gone a; claim b gone a 0; beat b`,
	"gone, no presence":    `claim a free 0; gone a; beat b; claim b gone a 0; beat b`,
	"release":              `claim a free 0 1; claim b free 2; release b 0 1 2; release a 1 2; release a 1; beat a 0 1; beat a`,
	"presence":             `join b 2; join a 1; join c 3; beat b; beat c giving 1 leaving; beat c; beat a; give a 0 2; give d 1; beat b`,
	"joined twice":         `join a 1; beat a giving 1 leaving; join a 2; beat b; beat a; beat b`,
	"never joined":         `beat a; claim a free 0; give a 0; leave a; beat a 0; join a 1; beat a 0`,
	"leave":                `join a 1; join b 1; claim a free 0; leave b; beat a; leave a; beat b; release a 0; leave a; beat b; beat a 0`,
	"leave and beat":       `join a 1; claim a free 0; leave a; beat a 0; beat a 0; leave a; expire 0; beat b; claim b from a 0; leave a; beat b`,
	"locked rows":          `join a 1; claim a free 0 1; lock 1: beat a 0 1; lock 0 2: claim b free 2; lock 0: release a 0 1; beat a 0; expire 0; lock 0: claim b from a 0; lock 0: beat a 0; claim b from a 0; beat b`,
	"locked presence":      `join a 1; claim a free 0; shut a: beat a 0; gone a; beat b; shut a: beat a 0; claim b gone a 0; beat b; shut a: beat b 0`,
	"marked and locked":    `join a 1; claim a free 0 1; gone a; beat b; lock 0: beat a 0 1; claim b gone a 0 1; beat b`,
	"marks":                `join a 1; beat a; join b 1; suspect 7; mark 7; suspect 9; hold 9: mark 9; mark 9; beat a; beat a; mark 9; suspect 9; beat a; mark 9; suspect 9; mark 9; beat b; mark 9`,
	"operator":             `join a 1; claim a free 0 1; claim b free 2; operator a; beat a 0 1; operator a; beat b 2; claim b free 0 1; beat a 0 1`,
}

func TestTwinAndPostgresAnswerAlike(t *testing.T) { //nolint:tparallel // the scripts share a database
	t.Parallel()
	pool := grown(t, twinShards)
	for title, script := range twinScripts {
		t.Run(title, func(t *testing.T) {
			compareTwins(t, pool, script)
		})
	}
}

func TestTwinAndPostgresAnswerAlikeToRandomScripts(t *testing.T) {
	t.Parallel()
	pool := grown(t, twinShards)
	worker := rapid.SampledFrom([]string{"a", "b", "c"})
	buckets := rapid.SampledFrom([]string{"0", "1", "2", "0 1", "1 2", "0 1 2"})
	rapid.Check(t, func(rt *rapid.T) {
		var commands []string
		for range rapid.IntRange(1, 14).Draw(rt, "commands") {
			form := rapid.SampledFrom([]string{
				"join $a 1", "beat $a $b", "beat $a $b", "beat $a giving $b", "beat $a leaving", "claim $a free $b",
				"claim $a from $c $b", "claim $a gone $c $b", "claim $a gone $c $b", "give $a $b", "release $a $b",
				"leave $a", "expire $b", "gone $a", "gone $a", "operator $a", "suspect 9", "mark 9", "hold 9: mark 9",
				"lock $b: beat $a 0 1 2", "lock $b: claim $a from $c 0 1 2", "lock $b: claim $a free 0 1 2", "lock $b: release $a 0 1 2",
				"shut $a: beat $a $b",
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
		twin.perform(command)
		genuine.perform(command)
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
	held  bool // a session holds the lock
	// suspects are workers and their heartbeats, the twin's or PostgreSQL's.
	suspects   map[uuid.UUID]time.Time
	heartbeats map[uuid.UUID]int64
	said       string
	err        error
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
	case "suspect":
		s.said = s.suspect(int64(buckets[0]))
		return
	case "mark":
		s.said = s.mark(int64(buckets[0]))
		return
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
