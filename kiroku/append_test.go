package kiroku_test

import (
	"testing"

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
