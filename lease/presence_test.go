package lease_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/lease"
)

func TestRelinquish(t *testing.T) { // T-21
	t.Parallel()
	pool := database(t, 2)
	s := newStore(pool)
	a, b := uuid.New(), uuid.New()
	claim(t, s, 2, a, free(0)...)
	claim(t, s, 2, a, free(1)...)
	got, err := lease.Relinquish(t.Context(), pool, name, a, true)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "would relinquish", got, []int{0, 1})
	equal(t, "table unchanged", owned(t, pool, a), []int{0, 1})
	got, err = lease.Relinquish(t.Context(), pool, name, a, false)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "relinquished", got, []int{0, 1})
	equal(t, "free", owned(t, pool, uuid.Nil), []int{0, 1})
	if rows(t, pool)[0].Expiry != nil {
		t.Error("an expiry without an owner")
	}
	claim(t, s, 2, b, free(0)...)
	claim(t, s, 2, b, free(1)...)
	equal(t, "another takes both", owned(t, pool, b), []int{0, 1})
	got, err = lease.Relinquish(t.Context(), pool, name, a, false)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "nothing left of the first", got, nil)
}

func TestPresenceSaysWhoAWorkerIs(t *testing.T) {
	t.Parallel()
	pool := database(t, 2)
	s := newStore(pool)
	a := uuid.New()
	p := lease.Presence{
		Subscription: name, TTL: ttl, Weight: 3, Labels: map[string]string{"zone": "b"},
		Identity: lease.Identity{Worker: a, Host: "h", PID: 7, Version: "v"}, Lock: 77,
	}
	if err := s.Join(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	got, err := s.Beat(t.Context(), lease.Beat{
		Subscription: name, Shards: 2, Worker: a, TTL: ttl, Weight: 3, Lock: 78, Leaving: true, Giving: []int{1},
	})
	if err != nil {
		t.Fatal(err)
	}
	if !got.Joined || len(got.Workers) != 1 {
		t.Fatalf("got %+v", got)
	}
	got = beat(t, s, 2, uuid.New()) // the snapshot of the next one shows what the beat wrote
	w := got.Workers[0]
	if w.ID != a || w.Weight != 3 || !w.Leaving || w.Lock != 78 || w.Gone || w.Left < 25*time.Second || w.Age > 5*time.Second {
		t.Errorf("worker %+v", w)
	}
	equal(t, "giving", w.Giving, []int{1})
	var label string
	if err := pool.QueryRow(t.Context(), `select labels->>'zone' from suisha.workers`).Scan(&label); err != nil || label != "b" {
		t.Errorf("label %q, %v", label, err)
	}
	var host, version string
	var pid int
	if err := pool.QueryRow(t.Context(), `select host, pid, version from suisha.workers`).Scan(&host, &pid, &version); err != nil ||
		host != "h" || pid != 7 || version != "v" {
		t.Errorf("host %q, pid %d, version %q, %v", host, pid, version, err)
	}
	// The owner's beat clears a mark.
	exec(t, pool, `update suisha.workers set gone_at = now()`)
	if !beat(t, s, 2, uuid.New()).Workers[0].Gone {
		t.Error("not seen as gone")
	}
	beat(t, s, 2, a)
	if beat(t, s, 2, uuid.New()).Workers[0].Gone {
		t.Error("still gone after its beat")
	}
}

func TestJoinRemovesTheLongDead(t *testing.T) {
	t.Parallel()
	pool := database(t, 1)
	s := newStore(pool)
	join := func(worker uuid.UUID) {
		if err := s.Join(t.Context(), lease.Presence{Subscription: name, TTL: ttl, Weight: 1, Identity: lease.Identity{Worker: worker}}); err != nil {
			t.Fatal(err)
		}
	}
	join(uuid.New())
	exec(t, pool, `update suisha.workers set expires_at = now() - interval '2 hours'`)
	b := uuid.New()
	join(b)
	if got := beat(t, s, 1, b).Workers; len(got) != 1 || got[0].ID != b {
		t.Errorf("left are %+v", got)
	}
}

// The log of who owned what is bounded by age and by length, for each subscription.
func TestJoinRemovesTheOldEndOfTheLog(t *testing.T) {
	t.Parallel()
	pool := database(t, 1)
	s := newStore(pool)
	entries := func(subscription, age string, many int) {
		exec(t, pool, `
			insert into suisha.ownership_log (subscription, bucket, reason, at)
			select $1, n, $2::text, now() - $2::text::interval from generate_series(0, $3::int - 1) n`, subscription, age, many)
	}
	// left counts what is left by age, and the lowest bucket of each.
	left := func(step, want string) {
		t.Helper()
		if err := s.Join(t.Context(), lease.Presence{Subscription: name, TTL: ttl, Weight: 1, Identity: lease.Identity{Worker: uuid.New()}}); err != nil {
			t.Fatal(err)
		}
		var got string
		if err := pool.QueryRow(t.Context(), `
			select string_agg(format('%s: %s from %s', reason, many, first), ', ' order by reason)
			from (
				select reason, count(*) as many, min(bucket) as first
				from suisha.ownership_log where subscription = $1 group by reason
			) as l`, name).Scan(&got); err != nil || got != want {
			t.Errorf("%s: left are %q, %v, not %q", step, got, err, want)
		}
	}
	entries(name, "169 hours", 3)
	entries(name, "167 hours", 10_000)
	entries("another", "169 hours", 2)
	left("a week", "167 hours: 10000 from 0")
	entries(name, "1 hour", 7)
	left("10,000", "1 hour: 7 from 0, 167 hours: 9993 from 7")
	left("nothing to trim", "1 hour: 7 from 0, 167 hours: 9993 from 7")
	var others int
	if err := pool.QueryRow(t.Context(), `select count(*) from suisha.ownership_log where subscription = 'another'`).Scan(&others); err != nil || others != 2 {
		t.Errorf("another subscription has %d entries left, %v", others, err)
	}
}

func TestJoinReleaseAndLeaveNotify(t *testing.T) { // P-19
	t.Parallel()
	pool := database(t, 1)
	conn, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig.Copy())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	if _, err := conn.Exec(t.Context(), "listen "+lease.Channel); err != nil {
		t.Fatal(err)
	}
	heard := func(step string) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		n, err := conn.WaitForNotification(ctx)
		if err != nil || n.Payload != name {
			t.Errorf("%s: %v, %v", step, n, err)
		}
	}
	s := newStore(pool)
	a := uuid.New()
	if err := s.Join(t.Context(), lease.Presence{Subscription: name, TTL: ttl, Weight: 1, Identity: lease.Identity{Worker: a}}); err != nil {
		t.Fatal(err)
	}
	heard("join")
	claim(t, s, 1, a, free(0)...)
	if _, err := s.Release(t.Context(), lease.Release{Subscription: name, Shards: 1, Worker: a, Buckets: []int{0}}); err != nil {
		t.Fatal(err)
	}
	heard("release")
	claim(t, s, 1, a, free(0)...)
	if _, err := lease.Relinquish(t.Context(), pool, name, a, false); err != nil {
		t.Fatal(err)
	}
	heard("relinquish")
	if err := s.Leave(t.Context(), name, a); err != nil {
		t.Fatal(err)
	}
	heard("leave")
}

func TestOwnershipIsLogged(t *testing.T) {
	t.Parallel()
	pool := database(t, 1)
	s := newStore(pool)
	a, b := uuid.New(), uuid.New()
	claim(t, s, 1, a, free(0)...)
	expire(t, pool)
	claim(t, s, 1, b, from(a, 0)...)
	claim(t, s, 1, b, from(b, 0)...)
	if _, err := s.Release(t.Context(), lease.Release{Subscription: name, Shards: 1, Worker: b, Buckets: []int{0}}); err != nil {
		t.Fatal(err)
	}
	claim(t, s, 1, a, free(0)...)
	if _, err := lease.Relinquish(t.Context(), pool, name, a, false); err != nil {
		t.Fatal(err)
	}
	got, err := pool.Query(t.Context(), `select reason from suisha.ownership_log order by id`)
	if err != nil {
		t.Fatal(err)
	}
	reasons, err := pgx.CollectRows(got, pgx.RowTo[string])
	if err != nil || !slices.Equal(reasons, []string{"join", "expired", "resumed", "unused", "join", "operator"}) {
		t.Errorf("logged %v, %v", reasons, err)
	}
}

func TestStatementsRunInEveryExecMode(t *testing.T) { //nolint:tparallel // the modes share one database
	t.Parallel()
	pool := database(t, 2)
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			cfg := pool.Config().Copy()
			cfg.ConnConfig.DefaultQueryExecMode = mode
			p, err := pgxpool.NewWithConfig(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			w := newWorker(t, newStore(p), calm, 2)
			pass, err := w.Once(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "claimed", pass.Claimed, []int{0, 1})
			if pass, err = w.Once(t.Context()); err != nil {
				t.Fatal(err)
			}
			equal(t, "renewed", pass.Renewed, []int{0, 1})
			if _, err := lease.Relinquish(t.Context(), p, name, w.id, false); err != nil {
				t.Fatal(err)
			}
			if err := newStore(p).Leave(t.Context(), name, w.id); err != nil {
				t.Fatal(err)
			}
		})
	}
}
