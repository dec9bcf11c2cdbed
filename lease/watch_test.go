package lease_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/lease"
)

// process is a worker with a session of its own, and what watches the next one.
type process struct {
	*worker
	watch   *lease.Watch
	line    *severed
	session *pgx.Conn
	lock    int64
}

// severed is a store that can be cut off, for good.
type severed struct {
	lease.Store
	off atomic.Bool
}

var errSevered = errors.New("severed")

func (s *severed) Beat(ctx context.Context, b lease.Beat) (lease.Snapshot, error) {
	if s.off.Load() {
		return lease.Snapshot{}, errSevered
	}
	return s.Store.Beat(ctx, b)
}

func (s *severed) Release(ctx context.Context, r lease.Release) ([]int, error) {
	if s.off.Load() {
		return nil, errSevered
	}
	return s.Store.Release(ctx, r)
}

func (s *severed) Leave(ctx context.Context, subscription string, worker uuid.UUID) error {
	if s.off.Load() {
		return errSevered
	}
	return s.Store.Leave(ctx, subscription, worker)
}

// newProcess makes a worker whose session holds a lock.
func newProcess(t *testing.T, pool *pgxpool.Pool, lock int64, cfg lease.Config, shards int) *process {
	t.Helper()
	connect := func(ctx context.Context) (*pgx.Conn, error) {
		c := pool.Config().ConnConfig
		c.BuildContextWatcherHandler = func(pg *pgconn.PgConn) ctxwatch.Handler {
			return &pgconn.CancelRequestContextWatcherHandler{Conn: pg, DeadlineDelay: time.Second}
		}
		return pgx.ConnectConfig(ctx, c)
	}
	p := &process{lock: lock}
	p.watch = lease.NewWatch(connect, func(err error) { t.Logf("watch: %v", err) })
	p.line = &severed{Store: newStore(pool)}
	p.worker = newWorker(t, p.line, cfg, shards, func(c *lease.KeeperConfig, _ *holder) { c.Watch = p.watch })
	p.connect(t, pool)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { p.watch.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	return p
}

// connect opens the session and takes the lock.
func (p *process) connect(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	conn, err := pgx.ConnectConfig(context.Background(), pool.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	if _, err := conn.Exec(t.Context(), `select pg_advisory_lock($1)`, p.lock); err != nil {
		t.Fatal(err)
	}
	p.session = conn
	p.watch.Hold(p.lock)
}

// slow are leases that last longer than any of these tests waits.
var slow = lease.Config{TTL: 12 * time.Second, RenewInterval: time.Second}

// isGone reports whether the worker is marked.
func isGone(t *testing.T, pool *pgxpool.Pool, worker uuid.UUID) (gone bool) {
	t.Helper()
	err := pool.QueryRow(t.Context(), `select exists (select from suisha.workers where worker = $1 and gone_at is not null)`, worker).Scan(&gone)
	if err != nil {
		t.Fatal(err)
	}
	return gone
}

// watched waits until somebody waits for the lock.
func watched(t *testing.T, pool *pgxpool.Pool, lock int64) {
	t.Helper()
	eventually(t, "somebody waits for the session, on a server that has not just started", func() bool {
		var waits bool
		err := pool.QueryRow(t.Context(), `select clock_timestamp() - pg_postmaster_start_time() > interval '3 seconds' and exists (select from pg_locks where locktype = 'advisory' and not granted
			and (classid::bigint << 32 | objid::bigint) = $1 and database = (select oid from pg_database where datname = current_database()))`, lock).Scan(&waits)
		return err == nil && waits
	})
}

// pair is two processes that share 8 buckets, the first of which is watched.
func pair(t *testing.T, pool *pgxpool.Pool, cfg lease.Config) (a, b *process) {
	t.Helper()
	a = newProcess(t, pool, 11, cfg, 8)
	a.start(t)
	b = newProcess(t, pool, 22, cfg, 8)
	b.start(t)
	eventually(t, "they share", func() bool { return len(owned(t, pool, a.id)) == 4 && len(owned(t, pool, b.id)) == 4 })
	watched(t, pool, a.lock)
	return a, b
}

// dies ends the process as SIGKILL does: no word, no further beat.
func (p *process) dies(t *testing.T) {
	t.Helper()
	p.line.off.Store(true)
	if err := p.session.PgConn().Conn().Close(); err != nil {
		t.Fatal(err)
	}
}

// A process whose session ends is seen at once by the next one, and its buckets
// are taken long before its leases run out (P-13, P-14).
func TestBucketsOfADeadSessionAreTakenAtOnce(t *testing.T) {
	t.Parallel()
	pool := database(t, 8)
	a, b := pair(t, pool, slow)
	a.dies(t)
	died := time.Now()
	eventually(t, "the other owns all", func() bool { return len(owned(t, pool, b.id)) == 8 })
	if took := time.Since(died); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	var reasons []string
	if err := pool.QueryRow(t.Context(), `select array_agg(distinct reason) from suisha.ownership_log where from_worker = $1 and to_worker = $2`, a.id, b.id).Scan(&reasons); err != nil || !slices.Equal(reasons, []string{"gone"}) {
		t.Errorf("reasons %v, %v", reasons, err)
	}
}

// A session that comes back within the grace marks nobody (P-14).
func TestSessionThatComesBackIsNotGone(t *testing.T) {
	t.Parallel()
	pool := database(t, 8)
	a, b := pair(t, pool, slow)
	if err := a.session.PgConn().Conn().Close(); err != nil {
		t.Fatal(err)
	}
	a.watch.Hold(0)
	a.connect(t, pool)
	watched(t, pool, a.lock)
	time.Sleep(1500 * time.Millisecond)
	if isGone(t, pool, a.id) {
		t.Error("it is marked as gone")
	}
	equal(t, "a and b share", []int{len(owned(t, pool, a.id)), len(owned(t, pool, b.id))}, []int{4, 4})
}

// Whoever beats is alive, whatever became of the lock: the mark needs the
// heartbeat that was seen when the session ended (P-14).
func TestBeatWithinTheGraceIsNoDeath(t *testing.T) {
	t.Parallel()
	pool := database(t, 8)
	a, b := pair(t, pool, lease.Config{TTL: 3 * time.Second, RenewInterval: 400 * time.Millisecond})
	if err := a.session.PgConn().Conn().Close(); err != nil {
		t.Fatal(err)
	}
	for range 30 {
		if isGone(t, pool, a.id) {
			t.Fatal("it is marked as gone, and beats")
		}
		time.Sleep(100 * time.Millisecond)
	}
	equal(t, "a and b share", []int{len(owned(t, pool, a.id)), len(owned(t, pool, b.id))}, []int{4, 4})
}

// A marked worker that beats takes the mark away, and a claim that saw the mark
// before comes to nothing: what was renewed has another expiry (P-14).
func TestClaimByAMarkThatWasTakenAwayTakesNothing(t *testing.T) {
	t.Parallel()
	pool := database(t, 4)
	s := newStore(pool)
	ctx := t.Context()
	a, b := uuid.New(), uuid.New()
	join := func(id uuid.UUID) {
		if err := s.Join(ctx, lease.Presence{Subscription: name, TTL: ttl, Weight: 1, Lock: 5, Identity: lease.Identity{Worker: id}}); err != nil {
			t.Fatal(err)
		}
	}
	beat := func(id uuid.UUID, renew ...int) lease.Snapshot {
		got, err := s.Beat(ctx, lease.Beat{Subscription: name, Shards: 4, Worker: id, TTL: ttl, Weight: 1, Lock: 5, Renew: renew})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	claim := func(id uuid.UUID, w lease.Wanted) []int {
		got, err := s.Claim(ctx, lease.Claim{Subscription: name, Shards: 4, Worker: id, TTL: ttl, Wanted: []lease.Wanted{w}})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	join(a)
	join(b)
	equal(t, "a claims", claim(a, lease.Wanted{Bucket: 1}), []int{1})
	seen := beat(b).Rows[1]
	wanted := lease.Wanted{Bucket: 1, Expected: a, Expiry: seen.Expiry}
	equal(t, "without a mark", claim(b, wanted), nil)
	exec(t, pool, `update suisha.workers set gone_at = now() where worker = $1`, a)
	if w := beat(b).Workers; !slices.ContainsFunc(w, func(w lease.Worker) bool { return w.ID == a && w.Gone && w.Lock == 5 }) {
		t.Errorf("the mark is not seen: %+v", w)
	}
	equal(t, "a renews", beat(a, 1).Renewed, []int{1})
	exec(t, pool, `update suisha.workers set gone_at = now() where worker = $1`, a)
	equal(t, "the lease was renewed since", claim(b, wanted), nil)
	wanted.Expiry = beat(b).Rows[1].Expiry
	equal(t, "marked and unchanged", claim(b, wanted), []int{1})
	equal(t, "a renews what is another's", beat(a, 1).Renewed, nil)
}

// A worker that is marked and cannot take the mark away renews nothing: whoever
// claims by the mark would not know (P-14).
func TestMarkedWorkerRenewsOnlyWithItsPresence(t *testing.T) {
	t.Parallel()
	pool := database(t, 4)
	s := newStore(pool)
	ctx := t.Context()
	a := uuid.New()
	if err := s.Join(ctx, lease.Presence{Subscription: name, TTL: ttl, Weight: 1, Identity: lease.Identity{Worker: a}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Claim(ctx, lease.Claim{Subscription: name, Shards: 4, Worker: a, TTL: ttl, Wanted: []lease.Wanted{{Bucket: 0}}}); err != nil {
		t.Fatal(err)
	}
	exec(t, pool, `update suisha.workers set gone_at = now() where worker = $1`, a)
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := tx.Exec(ctx, `select 1 from suisha.workers for update`); err != nil {
		t.Fatal(err)
	}
	beat := lease.Beat{Subscription: name, Shards: 4, Worker: a, TTL: ttl, Weight: 1, Renew: []int{0}}
	got, err := s.Beat(ctx, beat)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "renewed while the presence is locked", got.Renewed, nil)
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if got, err = s.Beat(ctx, beat); err != nil {
		t.Fatal(err)
	}
	equal(t, "renewed with it", got.Renewed, []int{0})
}

// A process that starts where one was killed, alone, takes over long before the
// leases run out: it never saw the dead one's session, and gives it more time.
func TestSuccessorOfALoneDeadProcessTakesOverSoon(t *testing.T) {
	t.Parallel()
	pool := database(t, 8)
	long := lease.Config{TTL: 40 * time.Second, RenewInterval: time.Second}
	exec(t, pool, `insert into suisha.workers (subscription, worker, host, pid, version, session, lock, weight, joined_at, heartbeat_at, expires_at)
		select $1, gen_random_uuid(), 'h', 1, '', true, n, 1, now() - interval '1 hour', now() - interval '10 minutes', now() - interval '9 minutes'
		from generate_series(1, 40) n`, name)
	a := newProcess(t, pool, 11, long, 8)
	a.start(t)
	eventually(t, "it owns all", func() bool { return len(owned(t, pool, a.id)) == 8 })
	eventually(t, "the server is not young any more", func() bool {
		var old bool
		err := pool.QueryRow(t.Context(), `select clock_timestamp() - pg_postmaster_start_time() > interval '3 seconds'`).Scan(&old)
		return err == nil && old
	})
	a.dies(t)
	died := time.Now()
	b := newProcess(t, pool, 22, long, 8)
	b.start(t)
	eventually(t, "its successor owns all", func() bool { return len(owned(t, pool, b.id)) == 8 })
	if took := time.Since(died); took > 28*time.Second {
		t.Errorf("it took %v", took)
	}
}
