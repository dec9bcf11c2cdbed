package kiroku_test

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/suisha-go/suisha/kiroku"
)

func deadLetter(subscription string, member int, p kiroku.Position, id uuid.UUID) kiroku.DeadLetter {
	return kiroku.DeadLetter{
		Subscription: subscription, Member: member, Position: p, EventID: id,
		Reason: json.RawMessage(`{"kind": "max_attempts_exceeded", "attempts": 5}`), Summary: "max retry attempts exceeded (5)", Attempts: 5,
	}
}

// eventually polls until the condition holds.
func eventually(tb testing.TB, condition func() bool) {
	tb.Helper()
	deadline := time.Now().Add(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		if time.Now().After(deadline) {
			tb.Fatal("did not happen within 20 s")
		}
		<-tick.C
	}
}

// kiroku.md 13: 23, 26, and 8.3.
func TestDeadLetterAndCheckpointAreWrittenTogether(t *testing.T) {
	t.Parallel()
	pool := store(t)
	appended := mustAppend(t, pool, "a-1", 3)
	letter := deadLetter("s", 2, 2, appended.EventIDs[1])
	recorded, err := kiroku.RecordDeadLetter(t.Context(), pool, letter, 1)
	if err != nil || !recorded {
		t.Fatalf("%v, %v", recorded, err)
	}
	if got := checkpoints(t, pool, "s"); got[2] != 1 || len(got) != 1 {
		t.Errorf("checkpoints %v: the low-water mark is 1 (P-37)", got)
	}
	letters, next, err := kiroku.ListDeadLetters(t.Context(), pool, kiroku.DeadLetterFilter{})
	if err != nil || next != 0 || len(letters) != 1 {
		t.Fatalf("%+v, %d, %v", letters, next, err)
	}
	got := letters[0]
	if got.CreatedAt.IsZero() || got.ID == 0 {
		t.Errorf("%+v", got)
	}
	want := letter
	want.ID, want.CreatedAt = got.ID, got.CreatedAt
	want.Reason = json.RawMessage(`{"kind": "max_attempts_exceeded", "attempts": 5}`)
	if string(got.Reason) != `{"kind": "max_attempts_exceeded", "attempts": 5}` && string(got.Reason) != `{"attempts": 5, "kind": "max_attempts_exceeded"}` {
		t.Errorf("reason %s", got.Reason)
	}
	got.Reason = want.Reason
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}

	// A second failure of the same event keeps the first, and moves on.
	letter.Attempts, letter.Summary = 1, "other"
	recorded, err = kiroku.RecordDeadLetter(t.Context(), pool, letter, 2)
	if err != nil || recorded {
		t.Errorf("again: %v, %v", recorded, err)
	}
	kept, err := kiroku.GetDeadLetter(t.Context(), pool, want.ID)
	if err != nil || kept.Attempts != 5 || kept.Summary != want.Summary {
		t.Errorf("again: %+v, %v", kept, err)
	}
	if got := checkpoints(t, pool, "s"); got[2] != 2 {
		t.Errorf("again: checkpoints %v", got)
	}
}

func TestDeadLetterOfAnEventThatIsGoneIsTypedAndWritesNothing(t *testing.T) {
	t.Parallel()
	pool := store(t)
	save(t, pool, "s", 0, 1)
	letter := deadLetter("s", 0, 2, newID())
	_, err := kiroku.RecordDeadLetter(t.Context(), pool, letter, 2)
	gone := wantError[*kiroku.EventGoneError](t, err)
	if gone.EventID != letter.EventID || gone.Position != 2 {
		t.Errorf("%+v", gone)
	}
	if pg := wantError[*pgconn.PgError](t, err); pg.Code != "23503" {
		t.Errorf("SQLSTATE %s", pg.Code)
	}
	if got := checkpoints(t, pool, "s"); got[0] != 1 {
		t.Errorf("checkpoints %v", got)
	}
}

func TestDeadLettersAreListedNewestFirstInPages(t *testing.T) {
	t.Parallel()
	pool := store(t)
	appended := mustAppend(t, pool, "a-1", 12)
	for i, id := range appended.EventIDs {
		subscription := []string{"s", "other"}[i/10]
		letter := deadLetter(subscription, i%2, kiroku.Position(i+1), id)
		if _, err := kiroku.RecordDeadLetter(t.Context(), pool, letter, 0); err != nil {
			t.Fatal(err)
		}
	}
	one := 1
	for name, c := range map[string]struct {
		filter kiroku.DeadLetterFilter
		want   []int64
	}{
		"all":          {kiroku.DeadLetterFilter{Limit: 5}, []int64{12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1}},
		"subscription": {kiroku.DeadLetterFilter{Subscription: "s", Limit: 5}, []int64{10, 9, 8, 7, 6, 5, 4, 3, 2, 1}},
		"member":       {kiroku.DeadLetterFilter{Subscription: "s", Member: &one, Limit: 2}, []int64{10, 8, 6, 4, 2}},
		"event":        {kiroku.DeadLetterFilter{EventID: uuid.NullUUID{UUID: appended.EventIDs[3], Valid: true}}, []int64{4}},
		"nobody":       {kiroku.DeadLetterFilter{Subscription: "nobody"}, nil},
	} {
		var got []int64
		filter := c.filter
		for {
			page, next, err := kiroku.ListDeadLetters(t.Context(), pool, filter)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range page {
				got = append(got, int64(l.Position))
			}
			if next == 0 {
				break
			}
			if len(page) != filter.Limit {
				t.Errorf("%s: a page of %d", name, len(page))
			}
			filter.Before = next
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if _, _, err := kiroku.ListDeadLetters(t.Context(), pool, kiroku.DeadLetterFilter{Limit: -1}); !errors.Is(err, kiroku.ErrInvalid) {
		t.Errorf("limit -1: %v", err)
	}
	_, err := kiroku.GetDeadLetter(t.Context(), pool, 404)
	if missing := wantError[*kiroku.DeadLetterNotFoundError](t, err); missing.ID != 404 {
		t.Errorf("%+v", missing)
	}
}

func TestWhateverAnErrorSaysItsDeadLetterIsStored(t *testing.T) {
	t.Parallel()
	pool := store(t)
	appended := mustAppend(t, pool, "a-1", 1)
	texts := []string{"", "plain", "NUL \x00, bytes \xff\xfe, \\u0000 in words, \"quoted\"", strings.Repeat("long ", 4000), "\ufffd\u2028", `\`, `\\u0000`}
	for member, text := range texts {
		for _, reason := range []kiroku.Reason{
			{Kind: kiroku.Poison, Detail: text},
			{Kind: kiroku.InvalidPayload, Detail: text},
			{Kind: kiroku.Other, Detail: text, Extra: map[string]any{"detail": map[string]string{"code": text}}},
			{Kind: kiroku.MaxAttempts, Attempts: 5, Extra: map[string]any{"last_error": text, text: "key"}},
			{Kind: kiroku.MaxAttempts, Attempts: 5, Extra: map[string]any{"unfit": math.Inf(1), "f": func() {}}},
			{Kind: kiroku.MaxAttempts, Attempts: 5, Extra: map[string]any{"unfit": json.RawMessage(`["\ud800", 1e400000]`)}},
		} {
			raw, err := json.Marshal(reason)
			if err != nil {
				t.Fatal(err)
			}
			letter := deadLetter("s", member, 1, appended.EventIDs[0])
			letter.Reason, letter.Summary = raw, reason.Summary()
			exec(t, pool, `delete from kiroku.dead_letters`)
			if _, err := kiroku.RecordDeadLetter(t.Context(), pool, letter, 1); err != nil {
				t.Errorf("%q: %v", text, err)
			}
		}
	}
	letter := deadLetter("s", 0, 1, appended.EventIDs[0])
	letter.Summary = "\x00"
	if _, err := kiroku.RecordDeadLetter(t.Context(), noDatabase{t}, letter, 1); !errors.Is(err, kiroku.ErrInvalid) {
		t.Errorf("NUL in the summary: %v", err)
	}
	letter.Summary, letter.Reason = "", nil
	if _, err := kiroku.RecordDeadLetter(t.Context(), noDatabase{t}, letter, 1); !errors.Is(err, kiroku.ErrInvalid) {
		t.Errorf("no reason: %v", err)
	}
}
