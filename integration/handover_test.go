package integration_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Planned moves drain: over 100 moved buckets, with handlers running and a
// backlog all the time, nothing is lost, repeated or out of order (P-18, P-19,
// P-20, case 16, case 17).
func TestHundredMovedBucketsUnderLoadLoseRepeatAndReorderNothing(t *testing.T) { //nolint:paralleltest // it times what it sees
	w := newWorld(t, workerSpec{Shards: 64, Work: 5 * time.Millisecond})
	streams := w.streamsPerBucket(10)
	w.appendTo(streams, 5)
	stopLoad := w.keepLoaded(streams)
	a := w.start("a")
	w.eventually(20*time.Second, "a owns all", func() bool { return w.even("a") })
	running := map[string]*worker{"a": a}
	names := []string{"a"}
	for i := 0; w.moved() < 110; i++ {
		if i%2 == 0 {
			name := "w" + string(rune('a'+i))
			running[name] = w.start(name)
			names = append(names, name)
		} else {
			running[names[0]].stop(t)
			names = names[1:]
		}
		w.eventually(30*time.Second, "the buckets are even", func() bool { return w.even(names...) })
		w.eventually(30*time.Second, "each bucket goes on", w.eachOwnerHandles)
	}
	stopLoad()
	w.finish(2 * time.Minute)
	moved := w.moved()
	if n := w.repeated(); n != 0 {
		t.Errorf("%d events repeated over %d moves", n, moved)
	}
	if n := w.disordered(); n != 0 {
		t.Errorf("%d events out of order over %d moves", n, moved)
	}
	// The first event that a new owner handled was in the log before the last one
	// that the old owner handled: the backlog of the bucket was not empty.
	idle := w.count(`select count(*) from (
		select position, at, worker_id, lag(worker_id) over b as before, lag(at) over b as before_at
		from calls window b as (partition by bucket order by id)
	) c join kiroku.stream_events p on p.stream_id = 0 and p.stream_version = c.position
	join kiroku.events e on e.event_id = p.event_id
	where worker_id <> before and e.created_at > before_at`)
	if moved-idle < 100 {
		t.Errorf("%d of %d moves happened with an empty backlog", idle, moved)
	}
	t.Logf("%d moved buckets, %d events", moved, w.events())
}

// eachOwnerHandles reports whether every bucket was last handled by its owner.
func (w *world) eachOwnerHandles() bool {
	return w.count(`select count(*) from keiro.keiro_subscription_shards s where s.owner_worker_id is distinct from (
		select worker_id from calls c where c.bucket = s.bucket order by id desc limit 1)`) == 0
}

// streamsPerBucket makes streams and picks as many of each bucket, so that the
// buckets are worked off side by side.
func (w *world) streamsPerBucket(n int) []string {
	w.t.Helper()
	w.append(4*n*w.base.Shards, 1)
	rows, err := w.pool.Query(context.Background(), `select stream_name from (
		select stream_name, row_number() over (partition by (((hashtextextended(stream_id::text, 0) % $1) + $1) % $1) order by stream_id) as nth
		from kiroku.streams where category = $2
	) s where nth <= $3`, w.base.Shards, w.base.Category, n)
	if err != nil {
		w.t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		w.t.Fatal(err)
	}
	if len(names) != n*w.base.Shards {
		w.t.Fatalf("%d streams for %d buckets", len(names), w.base.Shards)
	}
	return names
}

// keepLoaded appends whenever less than a few rounds are waiting, until the
// returned function is called.
func (w *world) keepLoaded(streams []string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if w.events()-w.count(`select count(*) from calls where attempt = 0`) < int64(4*len(streams)) {
				w.appendTo(streams, 1)
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	w.t.Cleanup(cancel)
	return func() { cancel(); <-done }
}

// In steady state nothing moves, for 60 beats; odd numbers and more workers than
// buckets included (P-10).
func TestSteadyStateMovesNothingForSixtyBeats(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		shards int
		names  []string
	}{
		{1, []string{"a", "b"}},
		{7, []string{"a", "b", "c"}},
		{8, []string{"a", "b", "c"}},
	} {
		w := newWorld(t, workerSpec{Shards: c.shards, Work: time.Millisecond, TTL: 2 * time.Second, Renew: 200 * time.Millisecond})
		for _, name := range c.names {
			w.start(name)
		}
		w.eventually(20*time.Second, "the workers share", func() bool { return w.even(c.names...) && w.settled() })
		before := w.count(`select count(*) from suisha.ownership_log`)
		beats := w.beats()
		w.eventually(60*time.Second, "60 beats", func() bool { return w.beats() > beats+60 })
		if after := w.count(`select count(*) from suisha.ownership_log`); after != before {
			t.Errorf("N=%d, %d workers: %d changes of ownership in steady state", c.shards, len(c.names), after-before)
		}
		if !w.even(c.names...) {
			t.Errorf("N=%d: shares are %v", c.shards, w.owners())
		}
	}
}

// settled: no ownership has changed for two seconds.
func (w *world) settled() bool {
	return w.count(`select count(*) from suisha.ownership_log where at > clock_timestamp() - interval '2 seconds'`) == 0
}

// beats counts the beats of the first worker, by its heartbeats seen to move.
func (w *world) beats() int64 {
	return w.count(`select (extract(epoch from max(heartbeat_at)) * 1000)::bigint / 200 from suisha.workers`)
}

// Cold start, with default options: 64 buckets are one worker's within a second,
// and of four that start together within two, evenly (S-37 replaced).
func TestColdStartClaimsSixtyFourBucketsWithinASecond(t *testing.T) { //nolint:paralleltest // it times what it sees
	w := newWorld(t, workerSpec{Shards: 64, TTL: 30 * time.Second, Renew: 10 * time.Second})
	w.append(640, 1)
	w.start("a")
	w.eventually(20*time.Second, "every bucket is read", func() bool { return w.count(`select count(distinct bucket) from calls`) == 64 })
	if ms := w.sinceJoin(`select max(at) from suisha.ownership_log`); ms > 1000 {
		t.Errorf("the last bucket was claimed %d ms after the worker joined", ms)
	}
	// Each call is a row written by an instrumented process beside other tests; go run
	// ./integration/chaos -figures measures.
	if ms := w.sinceJoin(`select max(first) from (select min(at) as first from calls group by bucket) f`); ms > 3000 {
		t.Errorf("the last bucket was read %d ms after the worker joined", ms)
	}
}

// sinceJoin is the time in ms from the last join until a moment, by the
// database's clock.
func (w *world) sinceJoin(moment string) int64 {
	return w.count(`select (extract(epoch from (` + moment + `) - max(joined_at)) * 1000)::bigint from suisha.workers`)
}

func TestFourWorkersStartedTogetherAreEvenWithinTwoSeconds(t *testing.T) { //nolint:paralleltest // it times what it sees
	w := newWorld(t, workerSpec{Shards: 64, TTL: 30 * time.Second, Renew: 10 * time.Second})
	w.append(640, 1)
	names := []string{"a", "b", "c", "d"}
	for _, name := range names {
		w.start(name)
	}
	w.eventually(30*time.Second, "four share evenly", func() bool { return w.even(names...) })
	if ms := w.sinceJoin(`select max(at) from suisha.ownership_log`); ms > 2000 {
		t.Errorf("even %d ms after the last worker joined", ms)
	}
}
