package lease_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/suisha-go/suisha/lease"
)

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
