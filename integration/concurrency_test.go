package integration_test

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/suisha-go/suisha/shardpub"
)

// overtaking is work in which streams overtake each other all the time: now and then
// an event fails first, and its stream waits.
func overtaking(shards int) workerSpec {
	return workerSpec{
		Shards: shards, Concurrency: 8, Work: 5 * time.Millisecond, FailEvery: 23,
		Retry: shardpub.RetryPolicy{Delay: 300 * time.Millisecond},
	}
}

// P-39: with many streams of a bucket in flight a planned move repeats no event
// that was handled, either.
func TestPlannedMovesWithConcurrencyRepeatNothing(t *testing.T) { //nolint:paralleltest // it times what it sees
	spec := overtaking(16)
	spec.TTL, spec.Renew = 30*time.Second, 3*time.Second // no lease runs out on a machine that is slow
	w := newWorld(t, spec)
	streams := w.streamsPerBucket(20)
	w.appendTo(streams, 5)
	stopLoad := w.keepLoaded(streams)
	running := map[string]*worker{"a": w.start("a")}
	names := []string{"a"}
	w.eventually(20*time.Second, "a owns all", func() bool { return w.even("a") })
	kept := int64(0)
	for i := 0; w.moved() < 60; i++ {
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
		kept = max(kept, w.count(`select count(*) from suisha.acks`))
	}
	stopLoad()
	w.finish(2 * time.Minute)
	if n := w.repeatedAfterDone(); n != 0 {
		t.Errorf("%d events repeated", n)
	}
	if n := w.disordered(); n != 0 {
		t.Errorf("%d events out of order", n)
	}
	if kept == 0 {
		t.Error("nothing was overtaken")
	}
	t.Logf("%d moved buckets, %d events, settled sets of up to %d buckets", w.moved(), w.events(), kept)
}

// place is what the rows say of a bucket.
type place struct {
	checkpoint int64
	settled    map[int64]bool
}

func (p place) holds(position int64) bool { return position <= p.checkpoint || p.settled[position] }

// places reads what the rows say of a worker's buckets.
func (w *world) places(owner uuid.UUID) map[int]place {
	w.t.Helper()
	rows, err := w.pool.Query(context.Background(), `select s.bucket, c.last_seen, coalesce(a.settled, '')
		from keiro.keiro_subscription_shards s
		join kiroku.subscriptions c on c.subscription_name = s.subscription_name and c.consumer_group_member = s.bucket
		left join suisha.acks a on a.subscription = s.subscription_name and a.bucket = s.bucket
			and a.checkpoint = c.last_seen and a.checkpoint_at = c.updated_at
		where s.owner_worker_id = $1`, owner)
	if err != nil {
		w.t.Fatal(err)
	}
	places := map[int]place{}
	var bucket int
	var at int64
	var settled []byte
	_, err = pgx.ForEachRow(rows, []any{&bucket, &at, &settled}, func() error {
		places[bucket] = place{at, positions(settled)}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return places
}

// positions reads what suisha.acks holds: a byte for the format, the id of the last
// event, and the steps from position to position.
func positions(settled []byte) map[int64]bool {
	out, at := map[int64]bool{}, int64(0)
	for rest := settled[min(17, len(settled)):]; len(rest) > 0; {
		step, n := binary.Uvarint(rest)
		at += int64(step)
		out[at] = true
		rest = rest[n:]
	}
	return out
}

// call is what is known of an event that a killed worker was given.
type call struct {
	bucket   int
	position int64
	done     bool
	since    float64 // ms from the end of its handling to the kill
	again    bool    // another worker was given it
}

// callsOf lists the events that a worker was given until it was killed, and which came
// to another one after that. (It may have had a bucket before, and lost it.)
func (w *world) callsOf(owner uuid.UUID, killed time.Time) []call {
	w.t.Helper()
	rows, err := w.pool.Query(context.Background(), `select bucket, position, bool_or(ended is not null),
			coalesce(extract(epoch from $2 - max(ended_at)) * 1000, 0)::float8,
			exists (select from calls o where o.stream = c.stream and o.version = c.version and o.worker_id <> $1 and o.at > $2)
		from calls c where worker_id = $1 group by bucket, position, stream, version`, owner, killed)
	if err != nil {
		w.t.Fatal(err)
	}
	calls, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c call, err error) {
		err = row.Scan(&c.bucket, &c.position, &c.done, &c.since, &c.again)
		return c, err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return calls
}

// P-39: a process that is killed has only what was in flight repeated, and what was
// acked since the last flush; whatever the rows hold comes to nobody again, and was
// handled.
func TestSIGKILLWithConcurrencyRepeatsOnlyWhatWasNotFlushed(t *testing.T) { //nolint:paralleltest // it times what it sees
	const shards, rounds = 16, 4
	w := newWorld(t, overtaking(shards))
	streams := w.streamsPerBucket(20)
	w.appendTo(streams, 5)
	stopLoad := w.keepLoaded(streams)
	names, workers := []string{"0", "1"}, []*worker{w.start("0"), w.start("1")}
	type kill struct {
		owner  uuid.UUID
		at     time.Time
		places map[int]place
	}
	var kills []kill
	for i := range rounds {
		w.eventually(30*time.Second, "two share", func() bool { return w.even(names...) })
		w.eventually(30*time.Second, "each bucket goes on", w.eachOwnerHandles)
		time.Sleep(time.Second)
		var k kill
		err := w.pool.QueryRow(context.Background(), `select worker, clock_timestamp() from suisha.workers where host = $1`, names[0]).Scan(&k.owner, &k.at)
		if err != nil {
			t.Fatal(err)
		}
		workers[i].kill()
		time.Sleep(300 * time.Millisecond) // what it had sent is done, and its leases are still its own
		if k.places = w.places(k.owner); len(k.places) != shards/2 {
			t.Fatalf("%d buckets were the dead worker's", len(k.places))
		}
		kills = append(kills, k)
		name := string(rune('2' + i))
		workers, names = append(workers, w.start(name)), []string{names[1], name}
	}
	w.eventually(30*time.Second, "two share", func() bool { return w.even(names...) })
	stopLoad()
	w.finish(2 * time.Minute)
	flushed, kept := 0, 0
	for i, k := range kills {
		inFlight, unflushed, oldest := 0, 0, 0.0
		for _, c := range w.callsOf(k.owner, k.at) {
			p, its := k.places[c.bucket]
			switch {
			case !its: // moved away before
			case p.holds(c.position) && c.again:
				t.Errorf("kill %d: position %d came again though the rows hold it", i, c.position)
			case p.holds(c.position) && !c.done:
				t.Errorf("kill %d: position %d counts as settled and was not handled", i, c.position)
			case p.holds(c.position):
				flushed++
			case !c.again:
				t.Errorf("kill %d: position %d was in flight and never came again", i, c.position)
			case c.done:
				unflushed++
				oldest = max(oldest, c.since)
			default:
				inFlight++
			}
		}
		for _, p := range k.places {
			kept += len(p.settled)
		}
		t.Logf("kill %d: repeated %d in flight, %d acked since the last flush, the oldest %.0f ms before", i, inFlight, unflushed, oldest)
		if most := 8 * shards / 2; inFlight > most || oldest > 1500 {
			t.Errorf("kill %d: %d repeated in flight, of %d at the most; the oldest that was acked %.0f ms", i, inFlight, most, oldest)
		}
	}
	if n := w.disordered(); n != 0 {
		t.Errorf("%d events out of order", n)
	}
	if kept == 0 {
		t.Error("nothing was overtaken")
	}
	t.Logf("%d events were not repeated, %d of them above a checkpoint", flushed, kept)
}

// P-39: a stream that is retried for long holds itself only: the others overtake it
// up to the prefetch, and when the process is killed none of them comes again.
func TestStreamThatIsRetriedForLongCostsNobodyARepeat(t *testing.T) {
	t.Parallel()
	const held, streams, rounds, window = "orders-0", 10, 40, shardpub.DefaultPrefetchCount
	w := newWorld(t, workerSpec{Shards: 1, Concurrency: 8})
	w.append(streams, rounds)
	a := w.start("a", func(s *workerSpec) { s.FailStream, s.Retry = held, shardpub.RetryPolicy{Delay: time.Hour} })
	overtook, since := int64(0), time.Now()
	w.eventually(30*time.Second, "the others overtake it and wait", func() bool {
		if n := w.handled(); n != overtook {
			overtook, since = n, time.Now()
		}
		return overtook > 0 && time.Since(since) > 2*time.Second
	})
	if overtook < window/3 || overtook > window { // of the window, less what a page needs, and the held stream's own
		t.Errorf("%d events overtook it", overtook)
	}
	if n := w.count(`select coalesce(max(octet_length(settled)), 0) from suisha.acks`); n != 17+overtook {
		t.Errorf("%d bytes are kept of %d events", n, overtook)
	}
	if at := w.count(`select max(last_seen) from kiroku.subscriptions`); at != 0 {
		t.Errorf("the checkpoint is %d", at)
	}
	a.kill()
	w.start("b")
	w.finish(time.Minute)
	if n := w.repeatedAfterDone(); n != 0 {
		t.Errorf("%d events repeated", n)
	}
	if n := w.disordered(); n != 0 {
		t.Errorf("%d events out of order", n)
	}
	w.eventually(10*time.Second, "the row goes", func() bool {
		return w.count(`select count(*) from suisha.acks`) == 0 && w.count(`select max(last_seen) from kiroku.subscriptions`) == streams*rounds
	})
}
