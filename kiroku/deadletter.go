package kiroku

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// DeadLetter is an event that a subscription gave up.
type DeadLetter struct {
	// ID grows with time.
	ID           int64
	Subscription string
	Member       int
	Position     Position
	EventID      uuid.UUID
	// Reason is JSON in one of kiroku's shapes (see [Reason]); Summary is the
	// same in one line.
	Reason  json.RawMessage
	Summary string
	// Attempts is how often the owner that gave the event up had handed it out.
	Attempts  int
	CreatedAt time.Time
}

// RecordDeadLetter records a dead letter and moves the member's checkpoint
// forward, in one statement: both or none. checkpoint is what is settled once
// this event is, which is its position only if nothing before it is open
// (P-37). ID and CreatedAt are the server's.
//
// A second dead letter of the same event leaves the first as it is: recorded is
// false then. An event that was deleted for good is an [*EventGoneError], and the
// checkpoint stays. Like [SaveCheckpoint] it asks nobody who owns the member.
func RecordDeadLetter(ctx context.Context, db DB, letter DeadLetter, checkpoint Position) (recorded bool, err error) {
	if err := checkMember(letter.Member); err != nil {
		return false, err
	}
	if err := CheckJSON(letter.Reason); err != nil {
		return false, &ArgumentError{Argument: "Reason", Problem: err.Error()}
	}
	if err := invalidText(letter.Summary); err != nil {
		return false, &ArgumentError{Argument: "Summary", Problem: err.Error()}
	}
	err = db.QueryRow(ctx, recordDeadLetterSQL,
		letter.Subscription, letter.Member, int64(letter.Position), pgtype.UUID{Bytes: letter.EventID, Valid: true},
		string(letter.Reason), letter.Summary, letter.Attempts, int64(checkpoint),
	).Scan(&recorded)
	if err != nil {
		return false, deadLetterError(err, letter)
	}
	return recorded, nil
}

// DeadLetterFilter says which dead letters to list. The zero value: the newest
// hundred of all.
type DeadLetterFilter struct {
	// Subscription, if not empty, is the only one.
	Subscription string
	// Member, if not nil, is the only one.
	Member *int
	// EventID, if valid, is the only one.
	EventID uuid.NullUUID
	// Before is where to go on: what the previous page returned as next. Zero:
	// at the newest.
	Before int64
	// Limit is the size of the page. Zero: 100.
	Limit int
}

const defaultDeadLetterLimit = 100

// ListDeadLetters reads dead letters, newest first. next is the Before of the
// next page; 0 when this page was the last. Nothing is listed twice; what is
// recorded in between is listed when you begin again.
func ListDeadLetters(ctx context.Context, db DB, filter DeadLetterFilter) (letters []DeadLetter, next int64, err error) {
	if filter.Limit == 0 {
		filter.Limit = defaultDeadLetterLimit
	}
	if err := checkLimit(filter.Limit); err != nil {
		return nil, 0, err
	}
	if filter.Before == 0 {
		filter.Before = math.MaxInt64
	}
	var subscription *string
	if filter.Subscription != "" {
		subscription = &filter.Subscription
	}
	// One more than asked for tells whether there is another page.
	letters, err = collect[DeadLetter](ctx, db, listDeadLettersSQL, filter.Before, int64(filter.Limit)+1, subscription, filter.Member, nullUUID(filter.EventID))
	if err != nil {
		return nil, 0, storeError(err)
	}
	if len(letters) > filter.Limit {
		letters = letters[:filter.Limit]
		next = letters[filter.Limit-1].ID
	}
	return letters, next, nil
}

// GetDeadLetter reads one dead letter, or returns a [*DeadLetterNotFoundError].
func GetDeadLetter(ctx context.Context, db DB, id int64) (DeadLetter, error) {
	rows, err := db.Query(ctx, getDeadLetterSQL, id)
	if err != nil {
		return DeadLetter{}, storeError(err)
	}
	letter, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[DeadLetter])
	if errors.Is(err, pgx.ErrNoRows) {
		return DeadLetter{}, &DeadLetterNotFoundError{ID: id}
	}
	return letter, storeError(err)
}
