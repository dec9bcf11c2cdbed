package kiroku_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/suisha-go/suisha/kiroku"
)

// numbers is the positions of events, or their versions.
func numbers(events []kiroku.RecordedEvent, f func(kiroku.RecordedEvent) int64) []int64 {
	out := []int64{}
	for _, e := range events {
		out = append(out, f(e))
	}
	return out
}

func version(e kiroku.RecordedEvent) int64  { return e.Version }
func position(e kiroku.RecordedEvent) int64 { return int64(e.Position) }

func TestReadsReturnPagesInOrder(t *testing.T) {
	t.Parallel()
	pool := store(t)
	ctx := t.Context()
	for i := range 4 { // a: 1 3 5 7, b: 2 4 6 8
		mustAppend(t, pool, "a-1", 1)
		mustAppend(t, pool, fmt.Sprintf("b-%d", i%2), 1)
	}
	for _, c := range []struct {
		name string
		read func() ([]kiroku.RecordedEvent, error)
		by   func(kiroku.RecordedEvent) int64
		want []int64
	}{
		{"stream", func() ([]kiroku.RecordedEvent, error) { return kiroku.ReadStream(ctx, pool, "a-1", 0, 10) }, version, []int64{1, 2, 3, 4}},
		{"stream after 1, 2 of it", func() ([]kiroku.RecordedEvent, error) { return kiroku.ReadStream(ctx, pool, "a-1", 1, 2) }, version, []int64{2, 3}},
		{"stream after its end", func() ([]kiroku.RecordedEvent, error) { return kiroku.ReadStream(ctx, pool, "a-1", 4, 2) }, version, []int64{}},
		{"stream backward", func() ([]kiroku.RecordedEvent, error) { return kiroku.ReadStreamBackward(ctx, pool, "a-1", 0, 3) }, version, []int64{4, 3, 2}},
		{"stream backward before 2", func() ([]kiroku.RecordedEvent, error) { return kiroku.ReadStreamBackward(ctx, pool, "a-1", 2, 3) }, version, []int64{1}},
		{"missing stream", func() ([]kiroku.RecordedEvent, error) { return kiroku.ReadStream(ctx, pool, "a-2", 0, 10) }, version, []int64{}},
		{"category", func() ([]kiroku.RecordedEvent, error) { return kiroku.ReadCategory(ctx, pool, "b", 0, 10) }, position, []int64{2, 4, 6, 8}},
		{"category after 2, 2 of it", func() ([]kiroku.RecordedEvent, error) { return kiroku.ReadCategory(ctx, pool, "b", 2, 2) }, position, []int64{4, 6}},
		{"category backward", func() ([]kiroku.RecordedEvent, error) { return kiroku.ReadCategoryBackward(ctx, pool, "b", 0, 3) }, position, []int64{8, 6, 4}},
		{"category backward before 6", func() ([]kiroku.RecordedEvent, error) { return kiroku.ReadCategoryBackward(ctx, pool, "b", 6, 3) }, position, []int64{4, 2}},
		{"no category", func() ([]kiroku.RecordedEvent, error) { return kiroku.ReadCategory(ctx, pool, "c", 0, 10) }, position, []int64{}},
		{"all", func() ([]kiroku.RecordedEvent, error) { return kiroku.ReadAll(ctx, pool, 0, 100) }, position, []int64{1, 2, 3, 4, 5, 6, 7, 8}},
		{"all after 6", func() ([]kiroku.RecordedEvent, error) { return kiroku.ReadAll(ctx, pool, 6, 100) }, position, []int64{7, 8}},
		{"all backward", func() ([]kiroku.RecordedEvent, error) { return kiroku.ReadAllBackward(ctx, pool, 0, 2) }, position, []int64{8, 7}},
		{"all backward before 3", func() ([]kiroku.RecordedEvent, error) { return kiroku.ReadAllBackward(ctx, pool, 3, 9) }, position, []int64{2, 1}},
	} {
		read, err := c.read()
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if got := numbers(read, c.by); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if _, err := kiroku.ReadAll(ctx, pool, 0, 0); !errors.Is(err, kiroku.ErrInvalid) {
		t.Errorf("limit 0: %v", err)
	}
	if _, err := kiroku.ReadKeys(ctx, pool, 0, -1); !errors.Is(err, kiroku.ErrInvalid) {
		t.Errorf("limit -1: %v", err)
	}
}

// kiroku.md 4.9: deletion hides a stream from its own reads only, and so does
// the truncation mark.
func TestDeletedAndTruncatedEventsAreHiddenInTheirStreamOnly(t *testing.T) {
	t.Parallel()
	pool := store(t)
	mustAppend(t, pool, "a-1", 3)
	exec(t, pool, `update kiroku.streams set truncate_before = 3 where stream_name = 'a-1'`)
	if read, err := kiroku.ReadStream(t.Context(), pool, "a-1", 0, 10); err != nil || !slices.Equal(numbers(read, version), []int64{3}) {
		t.Errorf("truncated: %v, %v", numbers(read, version), err)
	}
	exec(t, pool, `update kiroku.streams set deleted_at = now() where stream_name = 'a-1'`)
	if read, err := kiroku.ReadStream(t.Context(), pool, "a-1", 0, 10); err != nil || len(read) != 0 {
		t.Errorf("deleted: %v, %v", numbers(read, version), err)
	}
	for name, read := range map[string]func() ([]kiroku.RecordedEvent, error){
		"category": func() ([]kiroku.RecordedEvent, error) { return kiroku.ReadCategory(t.Context(), pool, "a", 0, 10) },
		"all":      func() ([]kiroku.RecordedEvent, error) { return kiroku.ReadAll(t.Context(), pool, 0, 10) },
	} {
		if events, err := read(); err != nil || len(events) != 3 {
			t.Errorf("%s: %d events, %v", name, len(events), err)
		}
	}
}

func TestALinkedEventIsReadAtItsPlaceAndSaysWhereItIsFrom(t *testing.T) {
	t.Parallel()
	pool := store(t)
	home := mustAppend(t, pool, "home-1", 2)
	view := mustAppend(t, pool, "view-1", 1)
	exec(t, pool, `insert into kiroku.stream_events values ($1, $2, 2, $3, 2)`, home.EventIDs[1], view.StreamID, home.StreamID)
	exec(t, pool, `update kiroku.streams set stream_version = 2 where stream_id = $1`, view.StreamID)
	read, err := kiroku.ReadStream(t.Context(), pool, "view-1", 1, 10)
	if err != nil || len(read) != 1 || read[0].ID != home.EventIDs[1] || read[0].StreamID != home.StreamID || read[0].Version != 2 {
		t.Errorf("%+v, %v", read, err)
	}
	if got := mustAppend(t, pool, "view-1", 1); got.Version != 3 || got.Position != 4 {
		t.Errorf("append after a link: %+v", got)
	}
}

func TestKeysAndEventsReadTogetherAreTheLog(t *testing.T) {
	t.Parallel()
	pool := store(t)
	ctx := t.Context()
	for i := range 30 {
		mustAppend(t, pool, fmt.Sprintf("a-%d", i%7), 1+i%3)
	}
	all, err := kiroku.ReadAll(ctx, pool, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	var cursor kiroku.Position
	var got []kiroku.RecordedEvent
	for {
		keys, err := kiroku.ReadKeys(ctx, pool, cursor, 8)
		if err != nil {
			t.Fatal(err)
		}
		if len(keys) == 0 {
			break
		}
		ids := make([]uuid.UUID, len(keys))
		for i, k := range keys {
			ids[i] = k.EventID
		}
		events, err := kiroku.ReadEvents(ctx, pool, ids)
		if err != nil || len(events) != len(keys) {
			t.Fatalf("%d events for %d keys, %v", len(events), len(keys), err)
		}
		for _, k := range keys {
			e := events[slices.IndexFunc(events, func(e kiroku.RecordedEvent) bool { return e.ID == k.EventID })]
			e.Position, e.StreamID, e.Version = k.Position, k.StreamID, k.Version
			got = append(got, e)
			cursor = k.Position
			if at, err := kiroku.KeysAt(ctx, pool, []kiroku.Position{k.Position}); err != nil || !slices.Equal(at, []kiroku.Key{k}) {
				t.Errorf("KeysAt(%d) = %+v, %v", k.Position, at, err)
			}
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(all) {
		t.Errorf("pages of keys and events are not the log")
	}
	head, err := kiroku.Head(ctx, pool)
	if err != nil || head != cursor {
		t.Errorf("head %d, %v; the log ends at %d", head, err, cursor)
	}
	if at, err := kiroku.KeysAt(ctx, pool, []kiroku.Position{head + 1, head, 0, 1}); err != nil || len(at) != 2 || at[0].Position != 1 || at[1].Position != head {
		t.Errorf("the keys at both ends and beyond: %v, %v", at, err)
	}
	if events, err := kiroku.ReadEvents(ctx, pool, []uuid.UUID{newID()}); err != nil || len(events) != 0 {
		t.Errorf("unknown id: %v, %v", events, err)
	}
	if events, err := kiroku.ReadEvents(ctx, pool, nil); err != nil || len(events) != 0 {
		t.Errorf("no ids: %v, %v", events, err)
	}
}

// kiroku.md 6: the server's hash, which consumer groups of kiroku divide by.
func TestLookupGivesTheHashThatKirokuDividesBy(t *testing.T) {
	t.Parallel()
	pool := store(t)
	hashes := map[int64]int64{2: -1159030545924783614, 3: 115675922791092696, 4: 7689889139361983756, 5: -2125702883951418858}
	ids := []int64{99}
	for range hashes {
		ids = append(ids, mustAppend(t, pool, "orders-"+newID().String(), 1).StreamID)
	}
	streams, err := kiroku.LookupStreams(t.Context(), pool, ids)
	if err != nil || len(streams) != len(hashes) {
		t.Fatalf("%d streams, %v", len(streams), err)
	}
	for _, s := range streams {
		if s.Category != "orders" || s.Hash != hashes[s.ID] {
			t.Errorf("%+v, want hash %d", s, hashes[s.ID])
		}
		for _, n := range []int{1, 4, 8, 16} {
			want := queryOne[int](t, pool, `select (((hashtextextended($1::int8::text, 0) % $2::int8) + $2::int8) % $2::int8)::int`, s.ID, n)
			if s.Bucket(n) != want {
				t.Errorf("stream %d of %d buckets: %d, want %d", s.ID, n, s.Bucket(n), want)
			}
		}
	}
	if streams, err := kiroku.LookupStreams(t.Context(), pool, nil); err != nil || streams != nil {
		t.Errorf("no ids: %v, %v", streams, err)
	}
}
