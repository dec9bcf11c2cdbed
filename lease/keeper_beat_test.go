package lease_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/suisha-go/suisha/lease"
)

func TestTakenBucketIsLostAtTheNextBeat(t *testing.T) {
	t.Parallel()
	pool := database(t, 2)
	w := newWorker(t, newStore(pool), calm, 2)
	if _, err := w.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	tenure := w.holder.tenure(0)
	thief := uuid.New()
	exec(t, pool, `update keiro.keiro_subscription_shards
		set owner_worker_id = $1, lease_expires_at = now() + interval '1 minute' where bucket = 0`, thief)
	pass, err := w.Once(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "lost", pass.Lost, []int{0})
	equal(t, "renewed", pass.Renewed, []int{1})
	if !errors.Is(context.Cause(tenure.Context()), lease.ErrLost) {
		t.Errorf("cause %v", context.Cause(tenure.Context()))
	}
}

func TestLockedRowIsSkippedAndDoesNotMakeABeatWait(t *testing.T) { // P-8
	t.Parallel()
	pool := database(t, 3)
	w := newWorker(t, newStore(pool), calm, 3)
	if _, err := w.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	locked := func(mode string) lease.Pass {
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
		if _, err := tx.Exec(t.Context(), `select 1 from keiro.keiro_subscription_shards where bucket = 1 for `+mode); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		pass, err := w.Once(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("%s: took %v", mode, took)
		}
		return pass
	}
	pass := locked("update")
	equal(t, "renewed", pass.Renewed, []int{0, 2})
	equal(t, "skipped", pass.Skipped, []int{1})
	equal(t, "lost", pass.Lost, nil)
	if !w.holder.tenure(1).Trusted() {
		t.Error("a skipped bucket lost its trust")
	}
	// A fenced transaction of a handler does not make a renewal skip.
	equal(t, "renewed beside KEY SHARE", locked("key share").Renewed, upTo(3))
}

func TestBeatGoesOnWhilePresenceIsLocked(t *testing.T) {
	t.Parallel()
	pool := database(t, 1)
	w := newWorker(t, newStore(pool), calm, 1)
	if _, err := w.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), `select 1 from suisha.workers for update`); err != nil {
		t.Fatal(err)
	}
	pass, err := w.Once(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "renewed", pass.Renewed, []int{0})
}

func TestVanishedPresenceIsJoinedAgain(t *testing.T) {
	t.Parallel()
	pool := database(t, 1)
	w := newWorker(t, newStore(pool), calm, 1)
	if _, err := w.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	exec(t, pool, `delete from suisha.workers`)
	if _, err := w.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	var n int
	if err := pool.QueryRow(t.Context(), `select count(*) from suisha.workers where worker = $1`, w.id).Scan(&n); err != nil || n != 1 {
		t.Errorf("%d presence rows, %v", n, err)
	}
}

func TestUnknownRowOfOursIsClaimedAsANewTenure(t *testing.T) { // P-8
	t.Parallel()
	pool := database(t, 2)
	w := newWorker(t, newStore(pool), calm, 2)
	// A claim whose answer was lost.
	exec(t, pool, `update keiro.keiro_subscription_shards
		set owner_worker_id = $1, lease_expires_at = now() - interval '1 minute' where bucket = 1`, w.id)
	pass, err := w.Once(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "claimed", pass.Claimed, []int{0, 1})
}

func TestForeignRowsAreReportedOnce(t *testing.T) {
	t.Parallel()
	pool := database(t, 2)
	exec(t, pool, `insert into keiro.keiro_subscription_shards (subscription_name, bucket, shard_count) values ($1, 2, 3)`, name)
	w := newWorker(t, newStore(pool), calm, 2)
	for range 3 {
		if _, err := w.Once(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "reported", func() bool { return len(w.reported()) > 0 })
	var count *lease.ShardCountError
	if errs := w.reported(); len(errs) != 1 || !errors.As(errs[0], &count) || count.Configured != 2 || count.Found[0] != 3 {
		t.Errorf("reported %v", errs)
	}
	equal(t, "owned", owned(t, pool, w.id), []int{0, 1})
}
