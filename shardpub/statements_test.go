package shardpub_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/suisha-go/suisha/internal/pgtest"
	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/lease"
	"github.com/suisha-go/suisha/shardpub"
)

// statement reads one of the package's statements.
func statement(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("sql", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestEveryStatementPreparesAgainstTheSchema(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	files, err := filepath.Glob("sql/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("no statements: %v", err)
	}
	conn, err := r.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for _, file := range files {
		if _, err := conn.Conn().Prepare(t.Context(), file, statement(t, filepath.Base(file))); err != nil {
			var why *pgconn.PgError
			errors.As(err, &why)
			t.Errorf("%s: %v (%+v)", file, err, why)
		}
	}
}

// fenced is a subscription of four buckets that one worker owns.
type fenced struct {
	*rig
	owner uuid.UUID
	event kiroku.Appended
}

func newFenced(t *testing.T) fenced {
	t.Helper()
	f := fenced{rig: newRig(t), owner: uuid.New()}
	spec := lease.Subscription{Name: group, Target: orders, Shards: 4}
	err := pgx.BeginFunc(t.Context(), f.pool, func(tx pgx.Tx) error {
		if err := lease.Ensure(t.Context(), tx, spec); err != nil {
			return err
		}
		_, err := kiroku.SeedCheckpoints(t.Context(), tx, group, 4, kiroku.FromBeginning())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	f.take(f.owner)
	events := []kiroku.Event{{Type: "A", Data: []byte(`{}`)}, {Type: "B", Data: []byte(`{}`)}}
	out, err := kiroku.Append(t.Context(), f.pool, kiroku.StreamAppend{Stream: "orders-1", Events: events})
	if err != nil {
		t.Fatal(err)
	}
	f.event = out[0]
	return f
}

// take has a worker claim what it can get of the four buckets, whoever owned
// them: their leases are made to run out.
func (f fenced) take(worker uuid.UUID) {
	f.t.Helper()
	f.exec(`update keiro.keiro_subscription_shards set lease_expires_at = clock_timestamp() - interval '1 s' where owner_worker_id is not null`)
	var wanted []lease.Wanted
	for b := range 4 {
		wanted = append(wanted, lease.Wanted{Bucket: b, Expected: f.owner})
	}
	got, err := lease.NewPostgres(lease.PoolRunner(f.pool)).Claim(f.t.Context(), lease.Claim{
		Subscription: group, Shards: 4, Worker: worker, TTL: time.Minute, Wanted: wanted,
	})
	if err != nil || len(got) != 4 {
		f.t.Fatalf("claim: %v, %v", got, err)
	}
}

// saving is one row that checkpoint.sql returns.
type saving struct {
	subscription string
	bucket       int
	worker       uuid.UUID
	position     int64
	saved, mine  bool
}

// save runs checkpoint.sql for some buckets, all at one position.
func (f fenced) save(worker uuid.UUID, shards int32, position int64, buckets ...int32) map[int]saving {
	f.t.Helper()
	return f.saveSettled(worker, shards, position, nil, buckets...)
}

// saveSettled does so with what is settled above it, too.
func (f fenced) saveSettled(worker uuid.UUID, shards int32, position int64, settled []byte, buckets ...int32) map[int]saving {
	f.t.Helper()
	n := len(buckets)
	names, workers := make([]string, n), make([]uuid.UUID, n)
	counts, positions, above := make([]int32, n), make([]int64, n), make([][]byte, n)
	for i := range buckets {
		names[i], workers[i], counts[i], positions[i], above[i] = group, worker, shards, position, settled
	}
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	rows, err := f.pool.Query(ctx, statement(f.t, "checkpoint.sql"), names, buckets, workers, counts, positions, above)
	if err != nil {
		f.t.Fatal(err)
	}
	defer rows.Close()
	out := map[int]saving{}
	for rows.Next() {
		var s saving
		if err := rows.Scan(&s.subscription, &s.bucket, &s.worker, &s.position, &s.saved, &s.mine); err != nil {
			f.t.Fatal(err)
		}
		out[s.bucket] = s
	}
	if err := rows.Err(); err != nil {
		f.t.Fatal(err)
	}
	if len(out) != n {
		f.t.Errorf("%d rows for %d buckets", len(out), n)
	}
	return out
}

// park runs dead_letter.sql for the first event, with a mark of its own.
func (f fenced) park(worker uuid.UUID, shards int, mark kiroku.Position, reason string, settled ...byte) (written bool) {
	f.t.Helper()
	err := f.pool.QueryRow(f.t.Context(), statement(f.t, "dead_letter.sql"),
		group, 1, worker, shards, int64(f.event.Position)-1, f.event.EventIDs[0], reason, "poison: x", 3, int64(mark), settled).Scan(&written)
	if err != nil {
		f.t.Fatal(err)
	}
	return written
}

// release runs release.sql for bucket 1.
func (f fenced) release(worker uuid.UUID, shards int, checkpoint *int64, settled ...byte) (released bool, told int) {
	f.t.Helper()
	position := int64(-1)
	if checkpoint != nil {
		position = *checkpoint
	}
	err := f.pool.QueryRow(f.t.Context(), statement(f.t, "release.sql"),
		[]string{group}, []int{1}, []string{worker.String()}, []int{shards}, []int64{position}, [][]byte{settled}, []string{"shed"}).Scan(nil, nil, nil, &released, nil, &told)
	if err != nil {
		f.t.Fatal(err)
	}
	return released, told
}

// state is all that a fenced statement may change, without times.
func (f fenced) state() string {
	f.t.Helper()
	return ask[string](f.rig, `select concat_ws(E'\n',
		(select string_agg(concat_ws(' ', bucket, owner_worker_id, lease_expires_at, updated_at), ';' order by bucket) from keiro.keiro_subscription_shards),
		(select string_agg(concat_ws(' ', consumer_group_member, last_seen, updated_at), ';' order by consumer_group_member) from kiroku.subscriptions),
		(select string_agg(a::text, ';' order by bucket) from suisha.acks a),
		(select count(*) from kiroku.dead_letters))`)
}

// P-24, S-63: whoever does not own the bucket, or counts the shards otherwise,
// changes nothing with any of the fenced statements.
func TestFencedStatementsOfAStaleOwnerChangeNothing(t *testing.T) {
	t.Parallel()
	f := newFenced(t)
	thief := uuid.New()
	f.saveSettled(f.owner, 4, 3, []byte{7}, 1, 2)
	f.take(thief)
	before := f.state()
	five := int64(5)
	check := func(who string, worker uuid.UUID, shards int) {
		t.Helper()
		for b, s := range f.saveSettled(worker, int32(shards), 5, []byte{1}, 0, 1, 2, 3) {
			if s.saved || s.mine || s.worker != worker || s.position != 5 || s.subscription != group {
				t.Errorf("%s: checkpoint of bucket %d: %+v", who, b, s)
			}
		}
		if f.park(worker, shards, 5, `{"kind": "poison", "detail": "x"}`, 1) {
			t.Errorf("%s: a dead letter was written", who)
		}
		if released, told := f.release(worker, shards, &five, 1); released || told != 0 {
			t.Errorf("%s: a bucket was released, %d told", who, told)
		}
		if after := f.state(); after != before {
			t.Errorf("%s changed\n%s\nto\n%s", who, before, after)
		}
	}
	check("the old owner", f.owner, 4)
	check("nobody", uuid.Nil, 4)
	check("the owner with another number of shards", thief, 8)
	f.exec(`update keiro.keiro_subscription_shards set owner_worker_id = null, lease_expires_at = null`)
	before = f.state()
	check("the last owner of a free bucket", thief, 4)
}

// P-24, S-4B, S-49: the owner's do what they say.
func TestFencedStatementsOfTheOwnerWork(t *testing.T) {
	t.Parallel()
	f := newFenced(t)
	for b, s := range f.save(f.owner, 4, 7, 0, 2) {
		if !s.saved || !s.mine {
			t.Errorf("checkpoint of bucket %d: %+v", b, s)
		}
	}
	f.save(f.owner, 4, 3, 0)
	if got := []kiroku.Position{f.checkpoint(0), f.checkpoint(1), f.checkpoint(2)}; got[0] != 7 || got[1] != 0 || got[2] != 7 {
		t.Errorf("checkpoints are %v, want 7, 0, 7: a lower one moves nothing back", got)
	}

	// P-37: the mark, not the event's position, becomes the checkpoint.
	if !f.park(f.owner, 4, 9, `{"kind": "poison", "detail": "first"}`) || !f.park(f.owner, 4, 8, `{"kind": "poison", "detail": "second"}`) {
		t.Error("the fence did not hold for the owner")
	}
	letters := f.letters()
	if len(letters) != 1 || f.checkpoint(1) != 9 {
		t.Fatalf("%d letters, checkpoint %d", len(letters), f.checkpoint(1))
	}
	l := letters[0]
	if string(l.Reason) != `{"kind": "poison", "detail": "first"}` || l.Member != 1 || l.Position != f.event.Position-1 ||
		l.EventID != f.event.EventIDs[0] || l.Summary != "poison: x" || l.Attempts != 3 {
		t.Errorf("letter %+v", l)
	}

	if released, told := f.release(f.owner, 4, nil); !released || told != 1 || f.checkpoint(1) != 9 {
		t.Errorf("released %v, told %d, checkpoint %d", released, told, f.checkpoint(1))
	}
	if free := ask[bool](f.rig, `select owner_worker_id is null and lease_expires_at is null from keiro.keiro_subscription_shards where bucket = 1`); !free || f.owned() != 3 {
		t.Errorf("bucket 1 is not free, or another is: %d owned", f.owned())
	}
	if released, _ := f.release(f.owner, 4, nil); released {
		t.Error("released twice")
	}
}

// S-55, P-19: the final checkpoint goes with the release, and the others hear of
// it.
func TestReleaseWritesTheFinalCheckpointAndNotifies(t *testing.T) {
	t.Parallel()
	f := newFenced(t)
	conn, err := pgx.ConnectConfig(t.Context(), f.pool.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	if _, err := conn.Exec(t.Context(), "listen "+lease.Channel); err != nil {
		t.Fatal(err)
	}
	six := int64(6)
	if released, _ := f.release(f.owner, 4, &six); !released || f.checkpoint(1) != 6 {
		t.Errorf("released %v at %d", released, f.checkpoint(1))
	}
	if reason := ask[string](f.rig, `select reason from suisha.ownership_log order by id desc limit 1`); reason != "shed" {
		t.Errorf("logged as %q", reason)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	n, err := conn.WaitForNotification(ctx)
	if err != nil || n.Payload != group {
		t.Errorf("notification %+v, %v", n, err)
	}
}

// A lease row that somebody holds is skipped, without a wait; the checkpoints of
// the others are saved.
func TestCheckpointSkipsALockedLeaseRow(t *testing.T) {
	t.Parallel()
	f := newFenced(t)
	tx, err := f.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), `select from keiro.keiro_subscription_shards where bucket = 1 for update`); err != nil {
		t.Fatal(err)
	}
	got := f.save(f.owner, 4, 5, 0, 1, 2)
	if !got[0].saved || !got[2].saved {
		t.Errorf("the others: %+v", got)
	}
	if got[1].saved || !got[1].mine || f.checkpoint(1) != 0 {
		t.Errorf("the locked one: %+v at %d", got[1], f.checkpoint(1))
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := f.save(f.owner, 4, 5, 1); !got[1].saved || f.checkpoint(1) != 5 {
		t.Errorf("once it is free: %+v", got)
	}
}

// P-24: a renewal is not held up by a checkpoint in an open transaction, and a
// claim passes over its bucket.
func TestFenceHoldsOffClaimsAndNoRenewal(t *testing.T) {
	t.Parallel()
	f := newFenced(t)
	tx, err := f.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	rows, err := tx.Query(t.Context(), statement(t, "checkpoint.sql"),
		[]string{group}, []int32{1}, []uuid.UUID{f.owner}, []int32{4}, []int64{5}, [][]byte{{1}})
	if err != nil {
		t.Fatal(err)
	}
	rows.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	store := lease.NewPostgres(lease.PoolRunner(f.pool))
	if _, err := f.pool.Exec(ctx, `update keiro.keiro_subscription_shards set lease_expires_at = clock_timestamp() - interval '1 s'`); err != nil {
		t.Fatalf("an update of columns that are no key: %v", err)
	}
	got, err := store.Claim(ctx, lease.Claim{Subscription: group, Shards: 4, Worker: uuid.New(), TTL: time.Minute, Wanted: []lease.Wanted{
		{Bucket: 0, Expected: f.owner}, {Bucket: 1, Expected: f.owner},
	}})
	if err != nil || len(got) != 1 || got[0] != 0 {
		t.Errorf("claimed %v, %v, want bucket 0 alone", got, err)
	}
}

func TestStatementsOfTheReadmeWork(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, shardpub.Migrate)
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	statements := regexp.MustCompile("(?s)```sql\n(?:-- create.*?\n)?(.*?)```|`(select [^`]*)`").FindAllSubmatch(text, -1)
	if len(statements) < 3 {
		t.Errorf("%d statements", len(statements))
	}
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), "create table churn (stream text primary key, version bigint not null, added bigint not null)"); err != nil {
		t.Fatal(err)
	}
	for _, m := range statements {
		if _, err := conn.Conn().Prepare(t.Context(), "", string(m[1])+string(m[2])); err != nil {
			t.Errorf("%v\n%s%s", err, m[1], m[2])
		}
	}
}
