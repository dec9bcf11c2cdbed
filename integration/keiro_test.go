package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/shardpub"
)

// keiro's own scenarios, by its numbers, with worker processes where it has
// threads.

// write appends events of these types to one stream.
func (w *world) write(stream string, types ...string) {
	w.t.Helper()
	var events []kiroku.Event
	for _, kind := range types {
		events = append(events, kiroku.Event{Type: kind, Data: json.RawMessage(`{}`)})
	}
	if _, err := kiroku.Append(context.Background(), w.pool, kiroku.StreamAppend{Stream: stream, Events: events}); err != nil {
		w.t.Fatal(err)
	}
}

// workersPerStream is the most workers that handled events of one stream.
func (w *world) workersPerStream() int64 {
	return w.count(`select coalesce(max(n), 0) from (select count(distinct worker) as n from calls group by stream) s`)
}

// calls counts the calls of handlers.
func (w *world) calls() int64 { return w.count(`select count(*) from calls`) }

// owned counts the buckets that somebody owns, on whatever terms.
func (w *world) owned() int64 {
	return w.count(`select count(*) from keiro.keiro_subscription_shards where owner_worker_id is not null or lease_expires_at is not null`)
}

// onceInOrder fails the test unless every event was handled, once and in order.
func (w *world) onceInOrder() {
	w.t.Helper()
	if calls, events := w.calls(), w.events(); calls != events {
		w.t.Errorf("%d calls for %d events", calls, events)
	}
	if r, d := w.repeated(), w.disordered(); r != 0 || d != 0 {
		w.t.Errorf("%d repeated, %d out of order", r, d)
	}
}

// quiet fails the test if a worker reported anything but a beat that a slow
// machine kept waiting.
func (p *worker) quiet(t *testing.T) {
	t.Helper()
	for line := range strings.Lines(p.out.String()) {
		if !strings.Contains(line, " *lease.PassError ") {
			t.Errorf("worker %s reported: %s", p.name, line)
		}
	}
}

// T-10, S-35: a lone worker finds events that were there before it, owns every
// bucket, never sheds one, and handles each event once.
func TestLoneWorkerHandlesWhatWasThereBeforeIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workerSpec{Shards: 4, Renew: 300 * time.Millisecond})
	w.append(8, 5)
	a := w.start("a")
	w.finish(time.Minute)
	w.onceInOrder()
	if n := w.workersPerStream(); n != 1 {
		t.Errorf("%d workers handled one stream", n)
	}
	beats := w.beats()
	w.eventually(time.Minute, "ten more beats", func() bool { return w.beats() > beats+10 })
	if n := w.count(`select count(*) from suisha.ownership_log`); n != 4 || !w.even("a") {
		t.Errorf("%d claims, owners %v", n, w.owners())
	}
	a.quiet(t)
}

// T-11: three workers share an empty category, then its events; one leaves, and
// the other two handle all that comes.
func TestThreeWorkersShareAndTwoGoOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workerSpec{Shards: 6, Renew: 300 * time.Millisecond, Work: time.Millisecond})
	first := w.start("a")
	others := []*worker{w.start("b"), w.start("c")}
	w.eventually(time.Minute, "three share", func() bool { return w.even("a", "b", "c") && w.settled() })
	w.append(12, 5)
	w.finish(time.Minute)
	w.onceInOrder()
	if n := w.workersPerStream(); n != 1 {
		t.Errorf("%d workers handled one stream", n)
	}
	if n := w.count(`select count(distinct worker) from calls`); n < 2 {
		t.Errorf("%d workers took part", n)
	}
	first.stop(t)
	w.append(12, 5)
	w.finish(time.Minute)
	w.onceInOrder()
	if n := w.calls(); n != 120 {
		t.Errorf("%d calls, want 120", n)
	}
	for _, p := range others {
		p.quiet(t)
	}
}

// T-12, S-55: after a graceful end, with handlers running, nothing is owned,
// though the leases had half a minute left.
func TestGracefulEndFreesEverythingAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workerSpec{Shards: 4, TTL: 30 * time.Second, Renew: 200 * time.Millisecond, Work: 100 * time.Millisecond})
	w.append(16, 20)
	a := w.start("a")
	w.eventually(time.Minute, "a works", func() bool { return w.even("a") && w.calls() > 10 })
	began := time.Now()
	a.stop(t)
	if n := w.owned(); n != 0 {
		t.Errorf("%d buckets are owned after the end", n)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the end took %s", took)
	}
	if n := w.count(`select count(*) from calls where ended is null`); n != 0 {
		t.Errorf("%d handlers were cut off", n)
	}
	if n := w.count(`select count(*) from suisha.workers`); n != 0 {
		t.Errorf("%d workers are left", n)
	}
	a.quiet(t)
}

// T-13: a first failure is retried in place; nothing dies of it, nothing moves.
func TestFirstFailureIsRetriedAndNothingDies(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workerSpec{
		Shards: 2, Renew: 200 * time.Millisecond, FailOnce: true, Retry: shardpub.RetryPolicy{Delay: 50 * time.Millisecond},
	})
	w.append(2, 4)
	a := w.start("a")
	w.finish(time.Minute)
	if n := w.calls(); n != 16 {
		t.Errorf("%d calls, want 16", n)
	}
	odd := w.count(`select count(*) from (select array_agg(attempt order by id) as attempts from calls group by stream, version) c where attempts <> '{0,1}'`)
	if odd != 0 || w.disordered() != 0 {
		t.Errorf("%d events had other attempts than 0 and 1, %d were out of order", odd, w.disordered())
	}
	if n := w.moved() + w.count(`select count(*) from kiroku.dead_letters`); n != 0 {
		t.Errorf("%d moves and dead letters", n)
	}
	a.quiet(t)
}

// T-14: the worker ends while a handler blocks; what that had is another's, and
// after a graceful end nothing else is.
func TestEventThatBlocksIsHandledByTheNextWorker(t *testing.T) {
	t.Parallel()
	for what, end := range map[string]func(*worker){
		"SIGTERM": func(p *worker) { p.stop(t) },
		"SIGKILL": func(p *worker) { p.kill() },
	} {
		w := newWorld(t, workerSpec{
			Shards: 1, TTL: 2 * time.Second, Renew: 400 * time.Millisecond, Drain: 300 * time.Millisecond,
			Retry: shardpub.RetryPolicy{MaxDeliveries: 1}, // one failed attempt would park it
		})
		w.append(1, 5)
		a := w.start("a", func(s *workerSpec) { s.BlockAt = "orders-0@5" })
		w.eventually(time.Minute, "the last is blocked", func() bool { return w.calls() == 5 })
		w.eventually(time.Minute, "the others are settled", func() bool {
			return w.count(`select last_seen from kiroku.subscriptions`) == 4
		})
		end(a)
		w.start("b")
		w.finish(time.Minute)
		if n := w.calls(); n != 6 || w.disordered() != 0 {
			t.Errorf("%s: %d calls, %d out of order", what, n, w.disordered())
		}
		if n := w.count(`select count(*) from calls where worker = 'b' and (version <> 5 or attempt <> 0)`); n != 0 {
			t.Errorf("%s: %d events were handled twice or counted as failed", what, n)
		}
		if n := w.count(`select count(*) from kiroku.dead_letters`); n != 0 {
			t.Errorf("%s: %d dead letters", what, n)
		}
	}
}

// T-15: a worker joins one that owns all and is busy in each bucket. Nothing is
// lost, and, unlike with keiro, nothing is handled twice.
func TestWorkerThatJoinsABusyOneRepeatsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workerSpec{Shards: 4, Batch: 1, Work: 100 * time.Millisecond, Renew: 300 * time.Millisecond})
	w.append(24, 5)
	w.start("a")
	w.eventually(time.Minute, "a owns all and is busy in each bucket", func() bool {
		return w.even("a") && w.count(`select count(distinct bucket) from calls where ended is null`) == 4
	})
	w.start("b")
	w.eventually(time.Minute, "they share", func() bool { return w.even("a", "b") })
	w.finish(time.Minute)
	w.onceInOrder()
	if n := w.count(`select count(distinct worker) from calls`); n != 2 {
		t.Errorf("%d workers took part", n)
	}
}

// T-16, S-61: a worker that stands still past its TTL is a zombie: another takes
// over, and the one event that it had is handled twice, the same event.
func TestZombieCostsARepetitionAndNoEvent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workerSpec{Shards: 1, TTL: 2 * time.Second, Renew: 400 * time.Millisecond})
	w.append(1, 5)
	zombie := w.start("zombie", func(s *workerSpec) { s.BlockAt = "orders-0@1" })
	w.eventually(time.Minute, "it is in its handler", func() bool { return w.calls() == 1 })
	zombie.signal(syscall.SIGSTOP)
	w.start("b")
	w.finish(time.Minute)
	if n := w.calls(); n != 6 {
		t.Errorf("%d calls, want 6", n)
	}
	if n := w.count(`select count(distinct (stream, version, position)) from calls where version = 1 and attempt = 0`); n != 1 || w.repeated() != 1 {
		t.Errorf("%d events repeated", w.repeated())
	}
}

// T-17: poison is handled as often as the policy allows, parked, and passed; the
// worker lives.
func TestPoisonIsParkedAfterItsDeliveries(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workerSpec{
		Shards: 1, Renew: 300 * time.Millisecond, FailType: "Bad",
		Retry: shardpub.RetryPolicy{MaxDeliveries: 3, Delay: 50 * time.Millisecond},
	})
	w.write("orders-0", "Bad", "Good", "Good", "Good")
	a := w.start("a")
	w.eventually(time.Minute, "the others are handled", func() bool { return w.handled() == 3 })
	w.eventually(time.Minute, "all are settled", func() bool { return w.count(`select last_seen from kiroku.subscriptions`) == 4 })
	if n := w.count(`select count(*) from calls where version = 1 and attempt between 0 and 2`); n != 3 || w.calls() != 6 {
		t.Errorf("%d deliveries of the poison, %d in all", n, w.calls())
	}
	letters, _, err := kiroku.ListDeadLetters(context.Background(), w.pool, kiroku.DeadLetterFilter{})
	if err != nil || len(letters) != 1 {
		t.Fatalf("%d dead letters, %v", len(letters), err)
	}
	l := letters[0]
	if l.Subscription != "group" || l.Member != 0 || l.Position != 1 || l.Attempts != 3 || l.Summary != "max retry attempts exceeded (3)" {
		t.Errorf("dead letter %+v", l)
	}
	a.quiet(t)
	a.stop(t)
}

// P-1: a process that reads something else under the same name, or counts its
// shards otherwise, ends with its own error before it claims anything.
func TestProcessThatMeansSomethingElseIsRefusedBeforeAnyClaim(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workerSpec{Shards: 4})
	w.append(8, 1)
	w.start("a")
	w.finish(time.Minute)
	const state = `select md5(concat_ws(';',
		(select string_agg(concat_ws(' ', subscription_name, bucket, shard_count, owner_worker_id), ',' order by bucket) from keiro.keiro_subscription_shards),
		(select string_agg(concat_ws(' ', subscription_name, consumer_group_member), ',' order by consumer_group_member) from kiroku.subscriptions),
		(select string_agg(concat_ws(' ', name, target, shards), ',') from suisha.subscriptions),
		(select string_agg(worker::text, ',') from suisha.workers), (select count(*) from suisha.ownership_log)))`
	picture := func() (s string) {
		if err := w.pool.QueryRow(context.Background(), state).Scan(&s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	before := picture()
	for want, change := range map[int]func(*workerSpec){
		exitTarget: func(s *workerSpec) { s.Category = "bills" },
		exitShards: func(s *workerSpec) { s.Shards = 6 },
	} {
		p := w.start(fmt.Sprint("refused ", want), change)
		select {
		case <-p.exit:
		case <-time.After(time.Minute):
			t.Fatal("it runs")
		}
		var code *exec.ExitError
		if !errors.As(p.err, &code) || code.ExitCode() != want {
			t.Errorf("it ended with %v, want exit code %d", p.err, want)
		}
	}
	if after := picture(); after != before {
		t.Errorf("they wrote:\n%s", w.picture())
	}
}
