package shardpub_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/suisha-go/suisha/kiroku"
)

// kept is what suisha.acks says of bucket 1, nil without a row, and whether it goes
// with the checkpoint as it is.
func (f fenced) kept() (settled []byte, valid bool) {
	f.t.Helper()
	settled = ask[[]byte](f.rig, `select (select settled from suisha.acks where subscription = $1 and bucket = 1)`, group)
	row := f.place()
	if row != nil && !bytes.Equal(row, settled) {
		f.t.Errorf("%x is handed out of %x", row, settled)
	}
	return settled, row != nil
}

// place is what places.sql says was settled of bucket 1.
func (f fenced) place() (settled []byte) {
	f.t.Helper()
	var bucket int
	var checkpoint int64
	var stored bool
	err := f.pool.QueryRow(f.t.Context(), statement(f.t, "places.sql"), group, []int32{1}).Scan(&bucket, &checkpoint, nil, &stored, &settled, nil)
	if err != nil || bucket != 1 || kiroku.Position(checkpoint) != f.checkpoint(1) {
		f.t.Fatalf("bucket %d at %d: %v", bucket, checkpoint, err)
	}
	if rows := ask[int](f.rig, `select count(*) from suisha.acks where bucket = 1`); (rows == 1) != stored {
		f.t.Errorf("stored %v with %d rows", stored, rows)
	}
	return settled
}

// P-39, P-24: each of the fenced statements puts what was settled above the
// checkpoint in the place of all that was there, or takes it away, or leaves it.
func TestFencedStatementsReplaceTheSettledSetAsAWhole(t *testing.T) {
	t.Parallel()
	f := newFenced(t)
	six := int64(6)
	letter := `{"kind": "poison", "detail": "x"}`
	check := func(what string, want []byte, valid bool) {
		t.Helper()
		got, ok := f.kept()
		if !bytes.Equal(got, want) || ok != valid {
			t.Errorf("%s: %x, valid %v; want %x, %v", what, got, ok, want, valid)
		}
	}
	check("at first", nil, false)
	f.saveSettled(f.owner, 4, 3, []byte{1, 2}, 0, 1, 2)
	check("a checkpoint", []byte{1, 2}, true)
	f.saveSettled(f.owner, 4, 3, []byte{3}, 1)
	check("another", []byte{3}, true)
	f.saveSettled(f.owner, 4, 2, []byte{4}, 1) // the row holds a higher mark
	check("a lower one", []byte{4}, true)
	f.save(f.owner, 4, 4, 1)
	check("one of a worker that knows nothing of it", []byte{4}, false)
	f.saveSettled(f.owner, 4, 4, []byte{}, 1)
	check("nothing above it", nil, false)
	f.park(f.owner, 4, 5, letter, 5)
	check("a dead letter", []byte{5}, true)
	f.park(f.owner, 4, 5, letter, 6)
	check("another letter", []byte{6}, true)
	f.park(f.owner, 4, 5, letter)
	check("a letter of one that knows nothing of it", []byte{6}, false)
	if n := ask[int](f.rig, `select count(*) from suisha.acks where bucket in (0, 2) and settled = '\x0102'`); n != 2 {
		t.Errorf("%d rows of other buckets", n)
	}
	f.release(f.owner, 4, &six, 7)
	check("a release", []byte{7}, true)
	f.take(f.owner)
	f.release(f.owner, 4, nil)
	check("a release of one that read nothing", []byte{7}, true)
	f.take(f.owner)
	f.release(f.owner, 4, &six, 8)
	check("another release", []byte{8}, true)
}

// P-39: whoever else writes a checkpoint, back, forth or in its place, may want
// the events above it again.
func TestSettledSetGoesWithItsOwnCheckpointOnly(t *testing.T) {
	t.Parallel()
	f := newFenced(t)
	for name, change := range map[string]func() error{
		"a replay": func() error {
			_, _, err := kiroku.ResetCheckpoints(t.Context(), f.pool, 3, group)
			return err
		},
		"a replay from the checkpoint itself": func() error {
			_, _, err := kiroku.ResetCheckpoints(t.Context(), f.pool, 5, group)
			return err
		},
		"a skip": func() error {
			_, _, err := kiroku.ResetCheckpoints(t.Context(), f.pool, 8, group)
			return err
		},
		"a skip and a replay": func() error {
			if _, _, err := kiroku.ResetCheckpoints(t.Context(), f.pool, 8, group); err != nil {
				return err
			}
			_, _, err := kiroku.ResetCheckpoints(t.Context(), f.pool, 5, group)
			return err
		},
		"a worker of keiro": func() error { // it saves so, also where nothing moved
			return kiroku.SaveCheckpoint(t.Context(), f.pool, group, 1, 5)
		},
		"a start from nothing": func() error {
			if _, err := f.pool.Exec(t.Context(), `delete from kiroku.subscriptions`); err != nil {
				return err
			}
			_, err := kiroku.SeedCheckpoints(t.Context(), f.pool, group, 4, kiroku.FromPosition(5))
			return err
		},
		"an operator's update": func() error {
			_, err := f.pool.Exec(t.Context(), `update kiroku.subscriptions set last_seen = 4 where consumer_group_member = 1`)
			return err
		},
	} {
		f.exec(`update kiroku.subscriptions set last_seen = 0`)
		f.saveSettled(f.owner, 4, 5, []byte{9}, 0, 1, 2, 3)
		if f.place() == nil {
			t.Fatal("it does not go with its own checkpoint")
		}
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if got := f.place(); got != nil {
			t.Errorf("after %s: %x counts", name, got)
		}
	}
}

// A settled set that somebody holds keeps back its own bucket, without a wait, and
// no other.
func TestLockedSettledSetHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	f := newFenced(t)
	f.saveSettled(f.owner, 4, 3, []byte{1}, 0, 1)
	tx, err := f.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), `delete from suisha.acks where bucket = 1`); err != nil {
		t.Fatal(err)
	}
	six := int64(6)
	for _, settled := range [][]byte{{2}, {}} {
		got := f.saveSettled(f.owner, 4, 5, settled, 0, 1, 2)
		if !got[0].saved || !got[2].saved || got[1].saved || !got[1].mine || f.checkpoint(1) != 3 {
			t.Errorf("%x: %+v, bucket 1 at %d", settled, got, f.checkpoint(1))
		}
	}
	if released, _ := f.release(f.owner, 4, &six, 3); released || f.checkpoint(1) != 3 {
		t.Errorf("released %v at %d", released, f.checkpoint(1))
	}
	if got := f.save(f.owner, 4, 4, 1); !got[1].saved {
		t.Errorf("a checkpoint with nothing settled above it waits: %+v", got)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if released, _ := f.release(f.owner, 4, &six, 3); !released || !bytes.Equal(f.place(), []byte{3}) {
		t.Errorf("once it is free: released %v with %x", released, f.place())
	}
}
