package integration_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/internal/pgtest"
	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/shardpub"
)

const callsTable = `create table calls (
    id bigserial primary key,
    worker text not null,
    worker_id uuid not null,
    bucket integer not null,
    stream text not null,
    version bigint not null,
    position bigint not null,
    attempt integer not null,
    ended text,
    began_at timestamptz not null,
    ended_at timestamptz,
    at timestamptz not null default clock_timestamp()
)`

// world is one database with an event log, workers on it, and what they did.
type world struct {
	t    *testing.T
	pool *pgxpool.Pool
	base workerSpec
}

func newWorld(t *testing.T, base workerSpec) *world {
	t.Helper()
	pool := pgtest.New(t, shardpub.Migrate)
	w := &world{t: t, pool: pool, base: base}
	w.exec(callsTable)
	w.base.DSN = pgtest.DSN(pool)
	orElse(&w.base.Group, "group")
	orElse(&w.base.Category, "orders")
	orElse(&w.base.TTL, 3*time.Second)
	orElse(&w.base.Renew, time.Second)
	orElse(&w.base.Drain, 5*time.Second)
	return w
}

func orElse[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func (w *world) exec(sql string, args ...any) int64 {
	w.t.Helper()
	tag, err := w.pool.Exec(context.Background(), sql, args...)
	if err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
	return tag.RowsAffected()
}

func (w *world) count(sql string, args ...any) int64 {
	w.t.Helper()
	var n int64
	if err := w.pool.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// append writes rounds events to each of so many streams, one round after another.
func (w *world) append(streams, rounds int) {
	w.t.Helper()
	names := make([]string, streams)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", w.base.Category, i)
	}
	w.appendTo(names, rounds)
}

func (w *world) appendTo(streams []string, rounds int) {
	w.t.Helper()
	const perCall = 200
	for range rounds {
		for names := range slices.Chunk(streams, perCall) {
			var appends []kiroku.StreamAppend
			for _, name := range names {
				appends = append(appends, kiroku.StreamAppend{
					Stream: name, Events: []kiroku.Event{{Type: "Placed", Data: json.RawMessage(`{"n": 1}`)}},
				})
			}
			if _, err := kiroku.Append(context.Background(), w.pool, appends...); err != nil {
				w.t.Error(err)
				return
			}
		}
	}
}

// worker is a worker process.
type worker struct {
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	exit  chan struct{} // closed when it is gone
	err   error
	out   *lines
}

// start runs a worker process; change adapts the spec.
func (w *world) start(name string, change ...func(*workerSpec)) *worker {
	w.t.Helper()
	spec := w.base
	spec.Name = name
	for _, f := range change {
		f(&spec)
	}
	text, err := json.Marshal(spec)
	if err != nil {
		w.t.Fatal(err)
	}
	p := &worker{name: name, exit: make(chan struct{})}
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(os.Environ(), workerEnv+"="+string(text))
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out := &lines{t: w.t}
	p.out = out
	p.cmd.Stdout, p.cmd.Stderr = out, out
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		w.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.exit)
	}()
	w.t.Cleanup(func() {
		p.signal(syscall.SIGKILL)
		<-p.exit
		out.close()
	})
	return p
}

func (p *worker) signal(s syscall.Signal) { _ = syscall.Kill(p.cmd.Process.Pid, s) }

// kill ends the process as a power cut would.
func (p *worker) kill() {
	p.signal(syscall.SIGKILL)
	<-p.exit
}

// stop asks the process to leave and waits for it.
func (p *worker) stop(t *testing.T) {
	t.Helper()
	p.signal(syscall.SIGTERM)
	select {
	case <-p.exit:
		if p.err != nil {
			t.Errorf("worker %s: %v", p.name, p.err)
		}
	case <-time.After(30 * time.Second):
		t.Fatalf("worker %s did not leave", p.name)
	}
}

// lines logs a process's output until the test ends.
type lines struct {
	mu     sync.Mutex
	t      *testing.T
	closed bool
	text   []byte
}

// String is what the process has written.
func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	if !l.closed {
		l.t.Logf("%s", p)
	}
	return len(p), nil
}

func (l *lines) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

// eventually polls until what holds, and fails the test when it does not.
func (w *world) eventually(within time.Duration, what string, holds func() bool) time.Duration {
	w.t.Helper()
	began := time.Now()
	for !holds() {
		if time.Since(began) > within {
			w.t.Fatalf("not within %s: %s\n%s", within, what, w.picture())
		}
		time.Sleep(5 * time.Millisecond)
	}
	return time.Since(began)
}

// picture shows how things stand, for a failing test.
func (w *world) picture() string {
	rows, err := w.pool.Query(context.Background(), `select s.bucket, coalesce(c.last_seen, -1), coalesce(p.host, s.owner_worker_id::text, '-')
		from keiro.keiro_subscription_shards s
		left join kiroku.subscriptions c on c.subscription_name = s.subscription_name and c.consumer_group_member = s.bucket
		left join suisha.workers p on p.worker = s.owner_worker_id order by 1`)
	if err != nil {
		return err.Error()
	}
	defer rows.Close()
	out := fmt.Sprintf("%d calls, %d distinct events\n", w.count(`select count(*) from calls`), w.handled())
	for rows.Next() {
		var bucket, seen int64
		var owner string
		if err := rows.Scan(&bucket, &seen, &owner); err != nil {
			return err.Error()
		}
		out += fmt.Sprintf("bucket %d at %d: %s\n", bucket, seen, owner)
	}
	return out
}

func (w *world) handled() int64 {
	return w.count(`select count(*) from (select distinct stream, version from calls where ended = 'done') d`)
}

func (w *world) events() int64 {
	return w.count(`select count(*) from kiroku.stream_events e join kiroku.streams s on s.stream_id = e.original_stream_id
		where e.stream_id = 0 and s.category = $1`, w.base.Category)
}

// finish waits until every event of the category was handled.
func (w *world) finish(within time.Duration) {
	w.t.Helper()
	want := w.events()
	w.eventually(within, fmt.Sprintf("%d events handled", want), func() bool { return w.handled() >= want })
}

// repeated counts calls beyond the first for one event.
func (w *world) repeated() int64 {
	return w.count(`select count(*) - count(distinct (stream, version)) from calls where attempt = 0`)
}

// repeatedAfterDone counts calls for events that had been handled to the end.
func (w *world) repeatedAfterDone() int64 {
	return w.count(`select count(*) from calls c where exists (
		select from calls d where d.stream = c.stream and d.version = c.version and d.ended = 'done' and d.id < c.id)`)
}

// disordered counts calls that came before an earlier event of their stream was
// first handled.
func (w *world) disordered() int64 {
	return w.count(`select count(*) from (
		select version, lag(version) over (partition by stream order by id) as before
		from (select distinct on (stream, version) stream, version, id from calls order by stream, version, id) firsts
	) o where version < before`)
}

// owners counts buckets by the name of the worker that owns them.
func (w *world) owners() map[string]int {
	w.t.Helper()
	rows, err := w.pool.Query(context.Background(), `select coalesce(p.host, '?'), count(*)
		from keiro.keiro_subscription_shards s left join suisha.workers p on p.worker = s.owner_worker_id
		where s.owner_worker_id is not null and s.lease_expires_at > clock_timestamp() group by 1`)
	if err != nil {
		w.t.Fatal(err)
	}
	defer rows.Close()
	owners := map[string]int{}
	for rows.Next() {
		var name string
		var n int
		if err := rows.Scan(&name, &n); err != nil {
			w.t.Fatal(err)
		}
		owners[name] = n
	}
	return owners
}

// even reports whether exactly these workers own all buckets in exact shares.
func (w *world) even(names ...string) bool {
	owners := w.owners()
	if len(owners) != min(len(names), w.base.Shards) {
		return false
	}
	total := 0
	for _, name := range names {
		n := owners[name]
		if floor := w.base.Shards / len(names); n < floor || n > floor+1 {
			return false
		}
		total += n
	}
	return total == w.base.Shards
}

// moved counts changes of the worker that handles a bucket.
func (w *world) moved() int64 {
	return w.count(`select count(*) from (
		select worker_id, lag(worker_id) over (partition by bucket order by id) as before from calls
	) c where worker_id <> before`)
}
