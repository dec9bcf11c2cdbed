package lease_test

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/internal/pgtest"
	"github.com/suisha-go/suisha/lease"
)

func TestEnsureTwiceMakesTheRowsOnce(t *testing.T) { // T-02, S-21
	t.Parallel()
	pool := database(t, 4)
	if err := ensure(t.Context(), pool, subscription(4)); err != nil {
		t.Fatal(err)
	}
	equal(t, "free", owned(t, pool, uuid.Nil), upTo(4))
	var target string
	var shards int
	if err := pool.QueryRow(t.Context(), `select target, shards from suisha.subscriptions where name = $1`, name).Scan(&target, &shards); err != nil {
		t.Fatal(err)
	}
	if target != "orders" || shards != 4 {
		t.Errorf("recorded %q, %d", target, shards)
	}
}

func TestEnsureAdoptsTheRowsOfKeiro(t *testing.T) { // S-21
	t.Parallel()
	pool := pgtest.New(t, lease.Migrate)
	owner := uuid.New()
	exec(t, pool, `insert into keiro.keiro_subscription_shards (subscription_name, bucket, shard_count, owner_worker_id, lease_expires_at)
		values ($1, 1, 3, $2, now() + interval '1 hour')`, name, owner)
	if err := ensure(t.Context(), pool, subscription(3)); err != nil {
		t.Fatal(err)
	}
	equal(t, "still owned", owned(t, pool, owner), []int{1})
	equal(t, "free", owned(t, pool, uuid.Nil), []int{0, 2})
}

func TestEnsureMismatchWritesNothing(t *testing.T) { // T-09, S-22, L-0D, P-1
	t.Parallel()
	pool := database(t, 4)
	before := pgDump(t, pool)
	other := func(change func(*lease.Subscription)) error {
		s := subscription(4)
		change(&s)
		// Committed on purpose: nothing must have been written.
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		result := lease.Ensure(t.Context(), tx, s)
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		return result
	}
	for _, n := range []int{6, 3} {
		var count *lease.ShardCountError
		err := other(func(s *lease.Subscription) { s.Shards = n })
		if !errors.As(err, &count) || count.Subscription != name || count.Configured != n || !slices.Equal(count.Found, []int{4}) {
			t.Errorf("N=%d: %v", n, err)
		}
	}
	var target *lease.TargetError
	err := other(func(s *lease.Subscription) { s.Target = "$all" })
	if !errors.As(err, &target) || target.Field != "target" || target.Found != "orders" || target.Configured != "$all" {
		t.Errorf("target: %v", err)
	}
	err = other(func(s *lease.Subscription) { s.Filter, s.Shards = "paid", 5 })
	var count *lease.ShardCountError
	if !errors.As(err, &target) || target.Field != "filter" || !errors.As(err, &count) {
		t.Errorf("filter and shards: %v", err)
	}
	if after := pgDump(t, pool); after != before {
		t.Errorf("written:\n%s\nwas\n%s", after, before)
	}
	if err := ensure(t.Context(), pool, subscription(4)); err != nil {
		t.Errorf("the right configuration fails now: %v", err)
	}
}

// pgDump is the content of the tables as text.
func pgDump(t testing.TB, pool *pgxpool.Pool) string {
	t.Helper()
	var text string
	err := pool.QueryRow(t.Context(), `select
		(select coalesce(string_agg(s::text, e'\n' order by s::text), '') from keiro.keiro_subscription_shards s) || e'\n' ||
		(select coalesce(string_agg(s::text, e'\n' order by s::text), '') from suisha.subscriptions s)`).Scan(&text)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestEnsureFindsMixedRows(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, lease.Migrate)
	exec(t, pool, `insert into keiro.keiro_subscription_shards (subscription_name, bucket, shard_count)
		values ($1, 0, 4), ($1, 5, 8), ($1, 6, 7)`, name)
	err := ensure(t.Context(), pool, subscription(4))
	var count *lease.ShardCountError
	if !errors.As(err, &count) || !slices.Equal(count.Found, []int{7, 8}) {
		t.Errorf("got %v", err)
	}
}

func TestEnsureFromEightConnectionsAtOnce(t *testing.T) { // P-3
	t.Parallel()
	pool := pgtest.New(t, lease.Migrate)
	var wg sync.WaitGroup
	results := make([]error, 8)
	for i := range results {
		wg.Go(func() { results[i] = ensure(t.Context(), pool, subscription(4+i%2)) })
	}
	wg.Wait()
	won := 0
	for i, err := range results {
		var count *lease.ShardCountError
		switch {
		case err == nil:
			won++
		case !errors.As(err, &count):
			t.Errorf("%d: %v", i, err)
		}
	}
	if won != 4 {
		t.Errorf("%d of 8 succeeded, want the 4 that agree with the first", won)
	}
	all := rows(t, pool)
	for _, r := range all {
		if r.Shards != len(all) {
			t.Errorf("%d rows, one says %d", len(all), r.Shards)
		}
	}
}

func TestEnsureRefusesBadInputBeforeAnySQL(t *testing.T) {
	t.Parallel()
	err := lease.Ensure(t.Context(), nil, lease.Subscription{})
	if got := fields(err); !slices.Equal(got, []string{"Name", "Target", "Shards"}) {
		t.Errorf("got %v", got)
	}
}
