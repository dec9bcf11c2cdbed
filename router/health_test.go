package router_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/internal/pgtest"
	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/lease"
	"github.com/suisha-go/suisha/middleware"
	"github.com/suisha-go/suisha/router"
	"github.com/suisha-go/suisha/shardpub"
)

// problem waits for a problem of a kind and returns it.
func problem(t *testing.T, w *router.Worker, kind router.ProblemKind) router.Problem {
	t.Helper()
	var found router.Problem
	eventually(t, string(kind), func() bool {
		h := w.Health(t.Context())
		i := slices.IndexFunc(h.Problems, func(p router.Problem) bool { return p.Kind == kind })
		if i < 0 {
			return false
		}
		if h.Healthy {
			t.Error("healthy with a problem")
		}
		found = h.Problems[i]
		return true
	})
	return found
}

// healthy waits until there is no problem.
func healthy(t *testing.T, w *router.Worker) {
	t.Helper()
	eventually(t, "health", func() bool { return w.Health(t.Context()).Healthy })
}

// working waits until the Worker has so many buckets and reads for them.
func working(t *testing.T, w *router.Worker, buckets int) {
	t.Helper()
	eventually(t, "open buckets", func() bool {
		has := w.Health(t.Context()).Subscriptions[0].Buckets
		return len(has) == buckets && !slices.ContainsFunc(has, func(b shardpub.BucketStatus) bool { return b.State == shardpub.Opening })
	})
}

func TestHealthFollowsTheWorkersLife(t *testing.T) {
	t.Parallel()
	pool := database(t)
	w := newWorker(t, pool, quick(3))
	w.AddConsumerHandler("billing", "orders", accept)
	notRunning := func(when string) {
		t.Helper()
		h := w.Health(t.Context())
		if h.Healthy || len(h.Problems) != 1 || h.Problems[0].Kind != router.NotRunning || h.Problems[0].Err != nil {
			t.Errorf("%s: %+v", when, h)
		}
	}
	notRunning("before the start")
	start(t, w)
	eventually(t, "all buckets", func() bool {
		h := w.Health(t.Context())
		return h.Healthy && len(h.Subscriptions) == 1 && len(h.Subscriptions[0].Buckets) == 3
	})
	stop(t, w)
	notRunning("after the end")
}

func TestHealthNamesAHandlerThatIsStuck(t *testing.T) {
	t.Parallel()
	pool := database(t)
	cfg := quick(2)
	cfg.StuckAfter = 50 * time.Millisecond
	w := newWorker(t, pool, cfg)
	gate := make(chan struct{})
	w.AddConsumerHandler("billing", "orders", func(msg *message.Message) error {
		d, _ := shardpub.DeliveryFromContext(msg.Context())
		if d.Version == 2 {
			<-gate
		}
		return nil
	})
	at := add(t, pool, "orders-1", 2)
	before := time.Now()
	start(t, w)
	p := problem(t, w, router.HandlerStuck)
	if p.Subscription != "billing" || p.Stream != "orders-1" || p.Position != at || p.Bucket < 0 || p.Since.Before(before) {
		t.Errorf("problem: %+v", p)
	}
	for _, part := range []string{"handler stuck", `subscription="billing"`, `stream="orders-1"`, "position=2", "since="} {
		if !strings.Contains(p.String(), part) {
			t.Errorf("%q lacks %s", p, part)
		}
	}
	close(gate)
	healthy(t, w)
}

// refuseWrites makes every write to a table fail, until the function returned is
// called.
func refuseWrites(t *testing.T, db kiroku.DB, table string) func() {
	t.Helper()
	exec(t, db, `create or replace function public.refuse() returns trigger language plpgsql as
		$$ begin raise exception 'disk full'; end $$`)
	exec(t, db, "create trigger refuse before insert or update on "+table+" for each row execute function public.refuse()")
	return func() { exec(t, db, "drop trigger refuse on "+table) }
}

func TestHealthTellsThatCheckpointsCannotBeWritten(t *testing.T) {
	t.Parallel()
	pool := database(t)
	w := newWorker(t, pool, quick(2))
	w.AddConsumerHandler("billing", "orders", accept)
	start(t, w)
	healthy(t, w)
	allow := refuseWrites(t, pool, "kiroku.subscriptions")
	last := add(t, pool, "orders-1", 1)
	p := problem(t, w, router.CheckpointFailing)
	if !errors.As(p.Err, new(*shardpub.CheckpointError)) || p.Since.IsZero() || p.Bucket != router.NoBucket {
		t.Errorf("problem: %+v", p)
	}
	allow()
	waitFor(t, w, "billing", last)
	healthy(t, w)
}

func TestHealthNamesTheBucketWhoseDeadLetterCannotBeWritten(t *testing.T) {
	t.Parallel()
	pool := database(t)
	w := newWorker(t, pool, quick(1))
	w.AddConsumerHandler("billing", "orders", boom)
	last := add(t, pool, "orders-1", 1)
	allow := refuseWrites(t, pool, "kiroku.dead_letters")
	start(t, w)
	p := problem(t, w, router.BucketFailing)
	if p.Subscription != "billing" || p.Bucket != 0 || p.Stream != "orders-1" || p.Position != last || p.Err == nil {
		t.Errorf("problem: %+v", p)
	}
	allow()
	waitFor(t, w, "billing", last)
	if letters := deadLetters(t, pool, "billing"); len(letters) != 1 {
		t.Errorf("%d dead letters", len(letters))
	}
}

func TestHealthTellsThatTheLogCannotBeRead(t *testing.T) {
	t.Parallel()
	pool := database(t)
	w := newWorker(t, pool, quick(2))
	w.AddConsumerHandler("billing", "orders", accept)
	start(t, w)
	working(t, w, 2)
	exec(t, pool, "alter table kiroku.stream_events rename to hidden")
	p := problem(t, w, router.ReadFailing)
	if !errors.As(p.Err, new(*shardpub.ReadError)) {
		t.Errorf("problem: %+v", p)
	}
	exec(t, pool, "alter table kiroku.hidden rename to stream_events")
	waitFor(t, w, "billing", add(t, pool, "orders-1", 1))
}

func TestHealthNamesTheBucketsWhoseCheckpointsCannotBeRead(t *testing.T) {
	t.Parallel()
	pool := database(t)
	w := newWorker(t, pool, quick(2))
	w.AddConsumerHandler("billing", "orders", accept)
	exec(t, pool, "alter table suisha.acks rename column settled to hidden")
	start(t, w)
	p := problem(t, w, router.BucketFailing)
	if p.Subscription != "billing" || p.Bucket == router.NoBucket || p.Err == nil {
		t.Errorf("problem: %+v", p)
	}
	exec(t, pool, "alter table suisha.acks rename column hidden to settled")
	waitFor(t, w, "billing", add(t, pool, "orders-1", 1))
	healthy(t, w)
}

func TestHealthTellsThatTheSessionAndTheHeartbeatAreLost(t *testing.T) {
	t.Parallel()
	pool := database(t)
	cfg := quick(2)
	cfg.Node.Lease = lease.Config{TTL: 1500 * time.Millisecond, RenewInterval: 500 * time.Millisecond}
	w := newWorker(t, pool, cfg)
	w.AddConsumerHandler("billing", "orders", accept)
	start(t, w)
	eventually(t, "the buckets", func() bool { return len(w.Health(t.Context()).Subscriptions[0].Buckets) == 2 })

	name := pgx.Identifier{pool.Config().ConnConfig.Database}.Sanitize()
	admin, err := pgx.Connect(t.Context(), pgtest.Shared(t).AdminDSN())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close(t.Context()) }()
	exec(t, admin, "alter database "+name+" with allow_connections false")
	terminate := func() {
		exec(t, admin, "select pg_terminate_backend(pid) from pg_stat_activity where datname = $1", pool.Config().ConnConfig.Database)
	}
	terminate()
	p := problem(t, w, router.SessionLost)
	if !errors.As(p.Err, new(*shardpub.SessionError)) {
		t.Errorf("problem: %+v", p)
	}
	p = problem(t, w, router.HeartbeatLost)
	if p.Subscription != "billing" || p.Since.IsZero() {
		t.Errorf("problem: %+v", p)
	}
	eventually(t, "owners unknown", func() bool {
		terminate() // a connection that was being made is seen only now
		return w.Health(t.Context()).OwnersUnknown != nil
	})
	exec(t, admin, "alter database "+name+" with allow_connections true")
	healthy(t, w)
}

func TestHealthNamesTheBucketThatNobodyOwns(t *testing.T) {
	t.Parallel()
	pool := database(t)
	cfg := quick(3)
	cfg.Node.Lease = lease.Config{TTL: 600 * time.Millisecond, RenewInterval: 200 * time.Millisecond}
	first := newWorker(t, pool, cfg)
	first.AddConsumerHandler("billing", "orders", accept)
	start(t, first)
	stop(t, first)

	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	exec(t, tx, "select from keiro.keiro_subscription_shards where subscription_name = 'billing' and bucket = 1 for update")
	w := newWorker(t, pool, cfg)
	w.AddConsumerHandler("billing", "orders", accept)
	start(t, w)
	eventually(t, "bucket 1 is reported, and no other", func() bool {
		problems := w.Health(t.Context()).Problems
		return len(problems) == 1 && problems[0].Kind == router.Unowned && problems[0].Subscription == "billing" &&
			problems[0].Bucket == 1 && !problems[0].Since.IsZero()
	})
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	healthy(t, w)
}

// Buckets that nobody owns are looked for on the caller's pool; one that is used
// up is not the Worker's illness.
func TestHealthOfAWorkerWhosePoolIsUsedUp(t *testing.T) {
	t.Parallel()
	cfg := database(t).Config()
	cfg.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	w := newWorker(t, pool, quick(2))
	w.AddConsumerHandler("billing", "orders", accept)
	start(t, w)
	healthy(t, w)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	eventually(t, "health without the owners", func() bool {
		h := w.Health(t.Context())
		return h.Healthy && h.OwnersUnknown != nil
	})
}

func TestHealthTellsThatABucketBacksOff(t *testing.T) {
	t.Parallel()
	pool := database(t)
	cfg := quick(1)
	cfg.Retry = shardpub.RetryPolicy{MaxDeliveries: 1}
	w := newWorker(t, pool, cfg)
	w.AddConsumerHandler("billing", "orders", boom)
	last := add(t, pool, "orders-1", 3)
	start(t, w)
	p := problem(t, w, router.BackingOff)
	if p.Subscription != "billing" || p.Bucket != 0 || p.Stream != "orders-1" || p.Position == 0 {
		t.Errorf("problem: %+v", p)
	}
	waitFor(t, w, "billing", last)
	healthy(t, w)
}

func TestAnEventThatWaitsForItsRetryIsNotStuck(t *testing.T) {
	t.Parallel()
	pool := database(t)
	cfg := quick(1)
	cfg.StuckAfter = 20 * time.Millisecond
	w := newWorker(t, pool, cfg)
	var made calls
	w.AddConsumerHandler("billing", "orders", func(*message.Message) error {
		made.note("billing")
		return middleware.RetryAfter(errBoom, time.Hour)
	})
	add(t, pool, "orders-1", 1)
	start(t, w)
	eventually(t, "the event has waited for long", func() bool {
		at := made.of("billing")
		return len(at) > 0 && time.Since(at[0]) > 10*cfg.StuckAfter
	})
	healthy(t, w)
}
