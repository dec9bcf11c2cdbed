package lease_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/internal/pgtest"
	"github.com/suisha-go/suisha/lease"
)

const ttl = 30 * time.Second

func claim(t testing.TB, s lease.Store, shards int, worker uuid.UUID, wanted ...lease.Wanted) []int {
	t.Helper()
	got, err := s.Claim(t.Context(), lease.Claim{Subscription: name, Shards: shards, Worker: worker, TTL: ttl, Wanted: wanted})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// free wants buckets that are expected to be free.
func free(buckets ...int) []lease.Wanted { return from(uuid.Nil, buckets...) }

func from(owner uuid.UUID, buckets ...int) []lease.Wanted {
	var out []lease.Wanted
	for _, b := range buckets {
		out = append(out, lease.Wanted{Bucket: b, Expected: owner})
	}
	return out
}

func beat(t testing.TB, s lease.Store, shards int, worker uuid.UUID, buckets ...int) lease.Snapshot {
	t.Helper()
	got, err := s.Beat(t.Context(), lease.Beat{
		Subscription: name, Shards: shards, Worker: worker, TTL: ttl, Weight: 1, Renew: buckets,
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func expire(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	exec(t, pool, `update keiro.keiro_subscription_shards set lease_expires_at = now() - interval '1 minute'
		where owner_worker_id is not null`)
}

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

func TestClaimTakesFreeRowsOnce(t *testing.T) { // T-03, S-23
	t.Parallel()
	pool := database(t, 4)
	s := newStore(pool)
	a, b := uuid.New(), uuid.New()
	equal(t, "a", claim(t, s, 4, a, free(3, 1, 0, 2)...), upTo(4))
	equal(t, "b", claim(t, s, 4, b, free(0, 1, 2, 3)...), nil)
	for _, r := range rows(t, pool) {
		left := time.Until(*r.Expiry)
		if r.Owner.UUID != a || left < ttl-5*time.Second || left > ttl+5*time.Second || r.Heartbeat == nil {
			t.Errorf("row %+v", r)
		}
	}
}

func TestRacingClaimsNeverShareARow(t *testing.T) { // S-23
	t.Parallel()
	pool := database(t, 32)
	s := newStore(pool)
	var wg sync.WaitGroup
	got := make([][]int, 4)
	for i := range got {
		wg.Go(func() { got[i] = claim(t, s, 32, id(byte(i+1)), free(upTo(32)...)...) })
	}
	wg.Wait()
	all := slices.Concat(got...)
	slices.Sort(all)
	equal(t, "claimed in all", all, upTo(32))
}

func TestExpiredLeaseIsClaimedAndItsOldOwnerRenewsNothing(t *testing.T) { // T-04
	t.Parallel()
	pool := database(t, 4)
	s := newStore(pool)
	a, b := uuid.New(), uuid.New()
	claim(t, s, 4, a, free(upTo(4)...)...)
	equal(t, "before it expires", claim(t, s, 4, b, from(a, upTo(4)...)...), nil)
	expire(t, pool)
	equal(t, "from another owner than expected", claim(t, s, 4, b, from(uuid.New(), upTo(4)...)...), nil)
	equal(t, "after it expired", claim(t, s, 4, b, from(a, upTo(4)...)...), upTo(4))
	got := beat(t, s, 4, a, upTo(4)...)
	equal(t, "a renews", got.Renewed, nil)
	for _, r := range got.Rows {
		if r.Owner != b || r.Left <= 0 {
			t.Errorf("a sees %+v", r)
		}
	}
}

func TestClaimThenRenewInOneTransaction(t *testing.T) { // T-05
	t.Parallel()
	pool := database(t, 4)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := lease.NewPostgres(onTx{tx})
	a := uuid.New()
	claim(t, s, 4, a, free(upTo(4)...)...)
	equal(t, "renewed", beat(t, s, 4, a, upTo(4)...).Renewed, upTo(4))
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// onTx runs statements on the connection of an open transaction.
type onTx struct{ tx pgx.Tx }

func (r onTx) Do(ctx context.Context, f func(context.Context, *pgx.Conn) error) error {
	return f(ctx, r.tx.Conn())
}

func TestReleasedRowsAreFreeAndTheOthersStay(t *testing.T) { // T-06, S-25
	t.Parallel()
	pool := database(t, 4)
	s := newStore(pool)
	a, b := uuid.New(), uuid.New()
	claim(t, s, 4, a, free(upTo(4)...)...)
	heartbeat := *rows(t, pool)[0].Heartbeat
	got, err := s.Release(t.Context(), lease.Release{Subscription: name, Shards: 4, Worker: a, Buckets: []int{1, 0}})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "released", got, []int{0, 1})
	r := rows(t, pool)[0]
	if r.Owner.Valid || r.Expiry != nil || r.Heartbeat == nil || !r.Heartbeat.Equal(heartbeat) {
		t.Errorf("released row %+v", r)
	}
	equal(t, "b", claim(t, s, 4, b, free(upTo(4)...)...), []int{0, 1})
	got, err = s.Release(t.Context(), lease.Release{Subscription: name, Shards: 4, Worker: a, Buckets: upTo(4)})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "a's late release touches what is its own", got, []int{2, 3})
	equal(t, "b still owns", owned(t, pool, b), []int{0, 1})
}

func TestRenewalDoesNotLookAtTheOldExpiry(t *testing.T) { // S-24
	t.Parallel()
	pool := database(t, 2)
	s := newStore(pool)
	a := uuid.New()
	claim(t, s, 2, a, free(0, 1)...)
	expire(t, pool)
	equal(t, "renewed", beat(t, s, 2, a, 0, 1).Renewed, []int{0, 1})
	if left := time.Until(*rows(t, pool)[0].Expiry); left < ttl-5*time.Second {
		t.Errorf("%v left", left)
	}
}

func TestRenewalNamesItsBuckets(t *testing.T) { // P-8
	t.Parallel()
	pool := database(t, 3)
	s := newStore(pool)
	a := uuid.New()
	claim(t, s, 3, a, free(upTo(3)...)...)
	expire(t, pool)
	equal(t, "renewed", beat(t, s, 3, a, 1).Renewed, []int{1})
	for _, r := range rows(t, pool) {
		if fresh := time.Until(*r.Expiry) > 0; fresh != (r.Bucket == 1) {
			t.Errorf("bucket %d renewed: %v", r.Bucket, fresh)
		}
	}
}

func TestSnapshotListsRowsInOrderAndForeignCounts(t *testing.T) { // S-26
	t.Parallel()
	pool := database(t, 4)
	s := newStore(pool)
	a := uuid.New()
	claim(t, s, 4, a, free(2)...)
	exec(t, pool, `insert into keiro.keiro_subscription_shards (subscription_name, bucket, shard_count) values ($1, 5, 6), ($1, 6, 8)`, name)
	got := beat(t, s, 4, a)
	if len(got.Rows) != 4 || got.Rows[2].Owner != a || got.Rows[2].Expiry == 0 || got.Rows[0].Owner != uuid.Nil || got.Rows[0].Expiry != 0 {
		t.Errorf("rows %+v", got.Rows)
	}
	for b, r := range got.Rows {
		if r.Bucket != b {
			t.Errorf("row %d is bucket %d", b, r.Bucket)
		}
	}
	equal(t, "foreign", got.Foreign, []int{6, 8})
	if got.Joined {
		t.Error("joined without a presence row")
	}
}

func TestEveryStatementSaysTheNumberOfShards(t *testing.T) { // P-5
	t.Parallel()
	pool := database(t, 4)
	s := newStore(pool)
	a := uuid.New()
	equal(t, "claim", claim(t, s, 5, a, free(upTo(4)...)...), nil)
	claim(t, s, 4, a, free(upTo(4)...)...)
	equal(t, "renew", beat(t, s, 5, a, upTo(4)...).Renewed, nil)
	got, err := s.Release(t.Context(), lease.Release{Subscription: name, Shards: 5, Worker: a, Buckets: upTo(4)})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "release", got, nil)
}

func TestOwnerWithoutExpiryIsNeitherLiveNorToBeTaken(t *testing.T) { // S-2A
	t.Parallel()
	pool := database(t, 2)
	s := newStore(pool)
	a, b := uuid.New(), uuid.New()
	claim(t, s, 2, a, free(0, 1)...)
	exec(t, pool, `update keiro.keiro_subscription_shards set lease_expires_at = null where bucket = 0`)
	equal(t, "b claims", claim(t, s, 2, b, from(a, 0, 1)...), nil)
	r := beat(t, s, 2, b).Rows[0]
	if r.Owner != a || r.Expiry != 0 || r.Left != 0 {
		t.Errorf("row %+v", r)
	}
	w := newWorker(t, s, calm, 2)
	pass, err := w.Once(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "a worker claims", pass.Claimed, nil)
	equal(t, "its owner renews it", beat(t, s, 2, a, 0).Renewed, []int{0})
}

func TestInfiniteExpiryBreaksNoBeat(t *testing.T) {
	t.Parallel()
	pool := database(t, 3)
	s := newStore(pool)
	a := uuid.New()
	claim(t, s, 3, a, free(0, 1)...)
	exec(t, pool, `update keiro.keiro_subscription_shards set lease_expires_at = 'infinity' where bucket = 0`)
	exec(t, pool, `update keiro.keiro_subscription_shards set lease_expires_at = '-infinity' where bucket = 1`)
	got := beat(t, s, 3, uuid.New()).Rows
	if got[0].Left < time.Hour || got[1].Left >= 0 {
		t.Errorf("left %v and %v", got[0].Left, got[1].Left)
	}
}

func TestClaimSkipsALockedRow(t *testing.T) { // S-23, 7.F
	t.Parallel()
	pool := database(t, 2)
	s := newStore(pool)
	a, b := uuid.New(), uuid.New()
	claim(t, s, 2, a, free(0, 1)...)
	expire(t, pool)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// A fenced transaction of a's handler.
	if _, err := tx.Exec(t.Context(), `select 1 from keiro.keiro_subscription_shards where bucket = 0 and owner_worker_id = $1 for key share`, a); err != nil {
		t.Fatal(err)
	}
	equal(t, "while it is open", claim(t, s, 2, b, from(a, 0, 1)...), []int{1})
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	equal(t, "after it", claim(t, s, 2, b, from(a, 0)...), []int{0})
}

func TestStaleOwnerSeesEveryClaim(t *testing.T) { // P-24
	t.Parallel()
	pool := database(t, 1)
	s := newStore(pool)
	a, b := uuid.New(), uuid.New()
	claim(t, s, 1, a, free(0)...)
	expire(t, pool)
	const fence = `select count(*) from (select 1 from keiro.keiro_subscription_shards
		where subscription_name = $1 and bucket = 0 and owner_worker_id = $2 and shard_count = 1 for key share) f`
	// The claim's lock is held while a's fenced statement starts.
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "b claims", claim(t, lease.NewPostgres(onTx{tx}), 1, b, from(a, 0)...), []int{0})
	fenced := make(chan int, 1)
	go func() {
		n := -1
		if err := pool.QueryRow(t.Context(), fence, name, a).Scan(&n); err != nil {
			t.Error(err)
		}
		fenced <- n
	}()
	eventually(t, "the fence waits", func() bool {
		var waits bool
		err := pool.QueryRow(t.Context(), `select exists (select from pg_stat_activity
			where datname = current_database() and wait_event_type = 'Lock')`).Scan(&waits)
		return err == nil && waits
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := <-fenced; n != 0 {
		t.Errorf("a's fence found %d rows after b's claim", n)
	}
	var n int
	if err := pool.QueryRow(t.Context(), fence, name, b).Scan(&n); err != nil || n != 1 {
		t.Errorf("b's fence found %d rows, %v", n, err)
	}
}

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
		Identity: lease.Identity{Worker: a, Host: "h", PID: 7, Version: "v", Session: true},
	}
	if err := s.Join(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	got, err := s.Beat(t.Context(), lease.Beat{
		Subscription: name, Shards: 2, Worker: a, TTL: ttl, Weight: 3, Session: true, Leaving: true, Giving: []int{1},
	})
	if err != nil {
		t.Fatal(err)
	}
	if !got.Joined || len(got.Workers) != 1 {
		t.Fatalf("got %+v", got)
	}
	got = beat(t, s, 2, uuid.New()) // the snapshot of the next one shows what the beat wrote
	w := got.Workers[0]
	if w.ID != a || w.Weight != 3 || !w.Leaving || !w.Session || w.Gone || w.Left < 25*time.Second || w.Age > 5*time.Second {
		t.Errorf("worker %+v", w)
	}
	equal(t, "giving", w.Giving, []int{1})
	var label string
	if err := pool.QueryRow(t.Context(), `select labels->>'zone' from suisha.workers`).Scan(&label); err != nil || label != "b" {
		t.Errorf("label %q, %v", label, err)
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
	got, err := pool.Query(t.Context(), `select reason from suisha.ownership_log order by id`)
	if err != nil {
		t.Fatal(err)
	}
	reasons, err := pgx.CollectRows(got, pgx.RowTo[string])
	if err != nil || !slices.Equal(reasons, []string{"free", "expired", "resumed"}) {
		t.Errorf("logged %v, %v", reasons, err)
	}
}

func TestStatementsRunInEveryExecMode(t *testing.T) {
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
