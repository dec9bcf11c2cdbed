package integration_test

import (
	"testing"
	"time"
)

// Exact shares: a lone worker owns all; each that joins gets its share, and what
// a leaver had is dealt to the others (P-10).
func TestJoinersGetTheirExactShareAndLeaversBucketsAreRedistributed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workerSpec{Shards: 12, Work: 2 * time.Millisecond})
	w.append(120, 10)
	a := w.start("a")
	w.eventually(10*time.Second, "a owns all", func() bool { return w.even("a") })
	w.start("b")
	w.eventually(10*time.Second, "a and b share", func() bool { return w.even("a", "b") })
	w.start("c")
	w.eventually(10*time.Second, "three share", func() bool { return w.even("a", "b", "c") })
	w.start("d")
	w.eventually(10*time.Second, "four share", func() bool { return w.even("a", "b", "c", "d") })
	a.stop(t)
	w.eventually(10*time.Second, "three share again", func() bool { return w.even("b", "c", "d") })
	w.finish(time.Minute)
	if n := w.repeated(); n != 0 {
		t.Errorf("%d events repeated by planned moves", n)
	}
	if n := w.disordered(); n != 0 {
		t.Errorf("%d events out of order", n)
	}
}

// SIGKILL of one of three under load: nothing is lost or reordered, and what
// repeats lay above its bucket's checkpoint (S-60, S-64).
func TestSIGKILLLosesNothingAndRepeatsOnlyAboveTheCheckpoint(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workerSpec{Shards: 12, Work: 3 * time.Millisecond})
	w.append(240, 25)
	victim := w.start("a")
	w.start("b")
	w.start("c")
	w.eventually(15*time.Second, "three share", func() bool { return w.even("a", "b", "c") })
	w.eventually(30*time.Second, "a handles", func() bool { return w.count(`select count(*) from calls where worker = 'a'`) > 50 })
	victim.kill()
	w.exec(`create table checkpoints as select consumer_group_member as bucket, last_seen from kiroku.subscriptions where subscription_name = $1`, "group")
	w.exec(`create table dead as select distinct s.bucket from keiro.keiro_subscription_shards s join suisha.workers p on p.worker = s.owner_worker_id where p.host = 'a'`)
	if w.count(`select count(*) from dead`) == 0 {
		t.Fatal("the victim owned nothing")
	}
	w.eventually(w.base.TTL+10*time.Second, "two share", func() bool { return w.even("b", "c") })
	w.finish(2 * time.Minute)
	if n := w.disordered(); n != 0 {
		t.Errorf("%d events out of order", n)
	}
	below := w.count(`select count(*) from (select bucket, stream, version, min(position) as position from calls where attempt = 0
		group by bucket, stream, version having count(*) > 1) r join checkpoints c using (bucket)
		where r.position <= c.last_seen or r.bucket not in (select bucket from dead)`)
	if below != 0 {
		t.Errorf("%d events repeated that lay below their checkpoint or in a survivor's bucket", below)
	}
	t.Logf("%d repeated", w.repeated())
}
