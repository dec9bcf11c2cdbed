package lease_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

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
