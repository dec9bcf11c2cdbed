package kiroku_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/suisha-go/suisha/kiroku"
)

func TestAppendNumbersEventsInTheirStreamsAndInTheLog(t *testing.T) {
	t.Parallel()
	pool := store(t)
	got, err := kiroku.Append(t.Context(), pool,
		to("orders-2", kiroku.NoStream(), events(2)...),
		to("orders-1", kiroku.AnyVersion(), events(3)...))
	if err != nil {
		t.Fatal(err)
	}
	if got[0].Stream != "orders-2" || got[0].Version != 2 || got[0].Position != 2 || len(got[0].EventIDs) != 2 {
		t.Errorf("first: %+v", got[0])
	}
	if got[1].Stream != "orders-1" || got[1].Version != 3 || got[1].Position != 5 || len(got[1].EventIDs) != 3 {
		t.Errorf("second: %+v", got[1])
	}
	if got[1].StreamID != 2 || got[0].StreamID != 3 {
		t.Errorf("ids %d and %d, want 3 and 2: streams are created by name", got[0].StreamID, got[1].StreamID)
	}
	all, err := kiroku.ReadAll(t.Context(), pool, 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range all {
		if e.Position != kiroku.Position(i+1) {
			t.Errorf("event %d at position %d", i, e.Position)
		}
	}
	again := mustAppend(t, pool, "orders-1", 1)
	if again.Version != 4 || again.Position != 6 || again.StreamID != got[1].StreamID {
		t.Errorf("again: %+v", again)
	}
}

func TestRollbacksAndFailuresLeaveNoHolesInTheLog(t *testing.T) {
	t.Parallel()
	pool := store(t)
	known := mustAppend(t, pool, "known", 1).EventIDs[0]
	stop := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() { // a reader never sees a position without all before it
		for {
			select {
			case <-stop:
				return
			default:
			}
			keys, err := kiroku.ReadKeys(t.Context(), pool, 0, 10000)
			if err != nil {
				t.Error(err)
				return
			}
			for i, k := range keys {
				if k.Position != kiroku.Position(i+1) {
					t.Errorf("position %d in place %d", k.Position, i)
					return
				}
			}
		}
	})
	together(6, func(i int) {
		random := rand.New(rand.NewPCG(11, uint64(i)))
		for range 40 {
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			stream := fmt.Sprintf("s-%d", random.IntN(5))
			doomed := event(1)
			if random.IntN(4) == 0 {
				doomed.ID = known
			}
			_, err = kiroku.Append(t.Context(), tx, to(stream, kiroku.AnyVersion(), event(1), doomed))
			if err == nil && random.IntN(3) > 0 {
				err = tx.Commit(t.Context())
			} else {
				err = tx.Rollback(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
		}
	})
	close(stop)
	reader.Wait()
	wantDenseLog(t, pool)
}

func TestAppendNotifiesOncePerStream(t *testing.T) {
	t.Parallel()
	pool := store(t)
	notified := listen(t, pool)
	if _, err := kiroku.Append(t.Context(), pool,
		to("b-1,2", kiroku.AnyVersion(), events(5)...), to("a-1", kiroku.AnyVersion(), events(2)...)); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, pool, "a-1", 3)
	if _, err := kiroku.Append(t.Context(), pool, to("a-1", kiroku.NoStream(), event(1)), to("c-1", kiroku.NoStream(), event(1))); err == nil {
		t.Error("no conflict")
	}
	exec(t, pool, `update kiroku.streams set deleted_at = now() where stream_name = 'a-1'`)
	got := notified()
	slices.Sort(got[:2])
	if want := []string{"a-1,2,2", "b-1,2,3,5", "a-1,2,5", "end"}; !slices.Equal(got, want) {
		t.Errorf("notified %q, want %q", got, want)
	}
}

// Case 51: one notification per stream and append however many events there are, and
// the longest name that kiroku takes is far from what one may say.
func TestNotificationOfTheLongestNameIsShort(t *testing.T) {
	t.Parallel()
	pool := store(t)
	notified := listen(t, pool)
	name := "s-" + strings.Repeat("n", 510)
	mustAppend(t, pool, name, 500)
	got := notified()
	if len(got) != 2 {
		t.Fatalf("%d notifications of one append", len(got)-1)
	}
	// PostgreSQL takes 8,000 bytes. The name is kiroku's to send, so 200 cannot be kept.
	if n, err := kiroku.ParseNotification(got[0]); err != nil || n.Stream != name || n.Version != 500 || len(got[0]) > 600 {
		t.Errorf("%d bytes: %.40s… %v", len(got[0]), got[0], err)
	}
}

func TestEventsComeBackAsTheyWereAppended(t *testing.T) {
	t.Parallel()
	pool := store(t)
	full := kiroku.Event{
		ID: newID(), Type: "Größe", Data: []byte(`{"a": [1, "x", null]}`), Metadata: []byte(`{"m": true}`),
		CausationID:   uuid.NullUUID{UUID: newID(), Valid: true},
		CorrelationID: uuid.NullUUID{UUID: newID(), Valid: true},
	}
	before := queryOne[time.Time](t, pool, `select clock_timestamp()`)
	got, err := kiroku.Append(t.Context(), pool, to("s-1", kiroku.NoStream(), full, event(7)))
	if err != nil {
		t.Fatal(err)
	}
	after := queryOne[time.Time](t, pool, `select clock_timestamp()`)
	read, err := kiroku.ReadAll(t.Context(), pool, 0, 10)
	if err != nil || len(read) != 2 {
		t.Fatalf("%d events, %v", len(read), err)
	}
	want := []kiroku.RecordedEvent{
		{
			ID: full.ID, Type: full.Type, StreamID: got[0].StreamID, Version: 1, Position: 1, Data: full.Data, Metadata: full.Metadata,
			CausationID: full.CausationID, CorrelationID: full.CorrelationID, RecordedAt: read[0].RecordedAt,
		},
		{
			ID: got[0].EventIDs[1], Type: "Counted", StreamID: got[0].StreamID, Version: 2, Position: 2,
			Data: []byte(`{"n": 7}`), RecordedAt: read[0].RecordedAt,
		},
	}
	if !reflect.DeepEqual(read, want) {
		t.Errorf("read %+v\nwant %+v", read, want)
	}
	if at := read[0].RecordedAt; at.Before(before) || at.After(after) {
		t.Errorf("recorded at %v, not between %v and %v", at, before, after)
	}
	if v := got[0].EventIDs[1].Version(); v != 7 {
		t.Errorf("our ids are UUIDv%d", v)
	}
}
