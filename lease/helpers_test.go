package lease_test

import (
	"context"
	"os"
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

// Short leases for tests that wait for one to run out.
var quick = lease.Config{TTL: 1200 * time.Millisecond, RenewInterval: 300 * time.Millisecond}

// calm gives statements seconds, for tests that make their passes themselves.
var calm = lease.Config{TTL: 20 * time.Second, RenewInterval: 6 * time.Second}

// patience is how long a test waits for what should take a second.
const patience = 20 * time.Second

const name = "billing"

func subscription(shards int) lease.Subscription {
	return lease.Subscription{Name: name, Target: "orders", Shards: shards}
}

// database is a migrated database with the subscription ensured.
func database(t testing.TB, shards int) *pgxpool.Pool {
	t.Helper()
	pool := pgtest.New(t, lease.Migrate)
	if err := ensure(t.Context(), pool, subscription(shards)); err != nil {
		t.Fatal(err)
	}
	return pool
}

func ensure(ctx context.Context, pool *pgxpool.Pool, s lease.Subscription) error {
	return pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		return lease.Ensure(ctx, tx, s)
	})
}

func newStore(pool *pgxpool.Pool) *lease.Postgres { return lease.NewPostgres(lease.PoolRunner(pool)) }

// row is a shard row as a test sees it.
type row struct {
	Bucket, Shards int
	Owner          uuid.NullUUID
	Expiry         *time.Time
	Heartbeat      *time.Time
	Updated        time.Time
}

func rows(t testing.TB, pool *pgxpool.Pool) []row {
	t.Helper()
	got, err := pool.Query(t.Context(), `
		select bucket, shard_count, owner_worker_id, lease_expires_at, heartbeat_at, updated_at
		from keiro.keiro_subscription_shards where subscription_name = $1 order by bucket`, name)
	if err != nil {
		t.Fatal(err)
	}
	out, err := pgx.CollectRows(got, pgx.RowToStructByPos[row])
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// owned lists the buckets of a worker, uuid.Nil for the free ones.
func owned(t testing.TB, pool *pgxpool.Pool, worker uuid.UUID) []int {
	t.Helper()
	var out []int
	for _, r := range rows(t, pool) {
		if r.Owner.UUID == worker {
			out = append(out, r.Bucket)
		}
	}
	return out
}

func exec(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// eventually waits until the condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("not within %v: %s", patience, what)
		case <-tick.C:
		}
	}
}

func upTo(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

func equal(t testing.TB, what string, got, want []int) {
	t.Helper()
	if len(got) == 0 && len(want) == 0 {
		return
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// id makes readable ids that sort by n.
func id(n byte) uuid.UUID { return uuid.UUID{0: n, 6: 0x40, 8: 0x80, 15: n} }

// holder is a trivial Holder: it works on nothing, and drains at once.
type holder struct {
	store  lease.Store
	shards int
	worker uuid.UUID

	mu       sync.Mutex
	tenures  map[int]*lease.Tenure
	assigned []int
	drains   []int
	losses   []int
	// onDrain and onLose run first, if set.
	onDrain func(context.Context, *lease.Tenure, lease.Reason, func(error)) error
	onLose  func(*lease.Tenure)
}

func (h *holder) Assign(tenures []*lease.Tenure) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tenures == nil {
		h.tenures = map[int]*lease.Tenure{}
	}
	for _, t := range tenures {
		h.tenures[t.Bucket] = t
		h.assigned = append(h.assigned, t.Bucket)
	}
}

func (h *holder) Drain(ctx context.Context, t *lease.Tenure, r lease.Reason, unreleased func(error)) error {
	h.mu.Lock()
	h.drains = append(h.drains, t.Bucket)
	delete(h.tenures, t.Bucket)
	h.mu.Unlock()
	if h.onDrain != nil {
		if err := h.onDrain(ctx, t, r, unreleased); err != nil {
			return err
		}
	}
	for { // a beat under way may have the row locked
		freed, err := h.store.Release(ctx, lease.Release{Subscription: name, Shards: h.shards, Worker: h.worker, Buckets: []int{t.Bucket}})
		if err != nil || len(freed) == 1 || !t.Trusted() {
			return err
		}
	}
}

func (h *holder) Lose(t *lease.Tenure) {
	h.mu.Lock()
	h.losses = append(h.losses, t.Bucket)
	delete(h.tenures, t.Bucket)
	h.mu.Unlock()
	if h.onLose != nil {
		h.onLose(t)
	}
}

func (h *holder) tenure(bucket int) *lease.Tenure {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tenures[bucket]
}

func (h *holder) counts() (assigned, drains, losses int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.assigned), len(h.drains), len(h.losses)
}

// worker is a Keeper with its holder, running or not.
type worker struct {
	*lease.Keeper
	id     uuid.UUID
	holder *holder
	stop   context.CancelFunc
	done   chan error
	mu     sync.Mutex
	errs   []error
	events []lease.Event
}

func newWorker(t testing.TB, store lease.Store, cfg lease.Config, shards int, change ...func(*lease.KeeperConfig, *holder)) *worker {
	t.Helper()
	w := &worker{id: uuid.New(), done: make(chan error, 1)}
	kc := lease.KeeperConfig{Config: cfg, Subscription: subscription(shards)}
	kc.Identity = lease.Identity{Worker: w.id, Host: "test", PID: os.Getpid(), Version: "test"}
	kc.OnError = func(_ context.Context, err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.errs = append(w.errs, err)
	}
	kc.Observe = func(e lease.Event) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.events = append(w.events, e)
	}
	w.holder = &holder{store: store, shards: shards}
	for _, f := range change {
		f(&kc, w.holder)
	}
	w.id = kc.Identity.Worker
	w.holder.worker = w.id
	k, err := lease.NewKeeper(store, w.holder, kc)
	if err != nil {
		t.Fatal(err)
	}
	w.Keeper = k
	return w
}

// start runs the worker until the test ends, or its stop is called.
func (w *worker) start(t testing.TB) *worker {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	w.stop = cancel
	go func() {
		w.done <- w.Run(ctx)
		close(w.done)
	}()
	t.Cleanup(func() {
		cancel()
		<-w.done
	})
	return w
}

func (w *worker) reported() []error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.errs)
}

// drainUnless drains at once, but for buckets that hang until released is closed.
func drainUnless(hangs func(int) bool, released <-chan struct{}) func(context.Context, *lease.Tenure, lease.Reason, func(error)) error {
	return func(_ context.Context, t *lease.Tenure, _ lease.Reason, unreleased func(error)) error {
		if !hangs(t.Bucket) {
			return nil
		}
		unreleased(errStuck)
		<-released
		return errStuck
	}
}
