package kiroku

import (
	"bytes"
	"context"
	"errors"
	"math"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// ReadStream reads up to limit events of a stream, oldest first, whose version
// is greater than after; 0 reads from the beginning. A stream that is missing
// or softly deleted reads as empty; versions below a truncation mark are left
// out. Events linked into the stream are read at their place in it, and say
// with StreamID and Version where they come from. Position stays zero.
func ReadStream(ctx context.Context, db DB, stream string, after int64, limit int) ([]RecordedEvent, error) {
	return readEvents(ctx, db, limit, readStreamSQL, stream, after, limit)
}

// ReadStreamBackward is ReadStream, newest first, for versions less than
// before; 0 reads from the end.
func ReadStreamBackward(ctx context.Context, db DB, stream string, before int64, limit int) ([]RecordedEvent, error) {
	return readEvents(ctx, db, limit, readStreamBackwardSQL, stream, orEnd(before), limit)
}

// ReadCategory reads up to limit events of all streams of a category, in order
// of position, after the given one. Softly deleted streams and truncated events
// are included, as they are in [AllStreams].
//
// It costs one index probe per stream of the category: it is for tools and
// small categories. A subscription does not read this way.
func ReadCategory(ctx context.Context, db DB, category string, after Position, limit int) ([]RecordedEvent, error) {
	return readEvents(ctx, db, limit, readCategorySQL, category, int64(after), limit)
}

// ReadCategoryBackward is ReadCategory, newest first, for positions less than
// before; 0 reads from the end.
func ReadCategoryBackward(ctx context.Context, db DB, category string, before Position, limit int) ([]RecordedEvent, error) {
	return readEvents(ctx, db, limit, readCategoryBackwardSQL, category, orEnd(int64(before)), limit)
}

// ReadAll reads up to limit events of the whole log, in order of position,
// after the given one. Positions become visible in order: what a page has
// passed never gets an event later.
func ReadAll(ctx context.Context, db DB, after Position, limit int) ([]RecordedEvent, error) {
	return readEvents(ctx, db, limit, readAllSQL, int64(after), limit)
}

// ReadAllBackward is ReadAll, newest first, for positions less than before; 0
// reads from the end.
func ReadAllBackward(ctx context.Context, db DB, before Position, limit int) ([]RecordedEvent, error) {
	return readEvents(ctx, db, limit, readAllBackwardSQL, orEnd(int64(before)), limit)
}

// orEnd reads a backward bound.
func orEnd(before int64) int64 {
	if before == 0 {
		return math.MaxInt64
	}
	return before
}

func readEvents(ctx context.Context, db DB, limit int, sql string, args ...any) ([]RecordedEvent, error) {
	if err := checkLimit(limit); err != nil {
		return nil, err
	}
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, storeError(err)
	}
	defer rows.Close()
	var (
		s   eventScan
		out []RecordedEvent
	)
	dest := []any{
		&s.id, &s.eventType, &s.streamID, &s.version, &s.position,
		&s.data, &s.metadata, &s.causation, &s.correlation, &s.recordedAt,
	}
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return nil, err
		}
		out = append(out, s.take())
	}
	return out, storeError(rows.Err())
}

// ReadEvents reads events by id, in no order; those that the store does not hold
// are missing. It fills neither Position nor StreamID nor Version: the caller has
// them from the [Key].
func ReadEvents(ctx context.Context, db DB, ids []uuid.UUID) ([]RecordedEvent, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := db.Query(ctx, readEventsSQL, uuidArray(ids))
	if err != nil {
		return nil, storeError(err)
	}
	defer rows.Close()
	out := make([]RecordedEvent, 0, len(ids))
	var s eventScan
	dest := []any{&s.id, &s.eventType, &s.data, &s.metadata, &s.causation, &s.correlation, &s.recordedAt}
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return nil, err
		}
		out = append(out, s.take())
	}
	return out, storeError(rows.Err())
}

// eventScan is the one row that a read of events scans into.
type eventScan struct {
	id, causation, correlation  pgtype.UUID
	eventType, data, metadata   pgtype.DriverBytes // of the connection, until the next row
	streamID, version, position int64
	recordedAt                  pgtype.Timestamptz
	types                       map[string]string
	room                        []byte // for values that are kept
	made                        int    // the size of the latest piece
}

// take makes an event of the row. Types are few, so their strings are shared.
func (s *eventScan) take() RecordedEvent {
	eventType, ok := s.types[string(s.eventType)]
	if !ok {
		if s.types == nil {
			s.types = map[string]string{}
		}
		eventType = string(s.eventType)
		s.types[eventType] = eventType
	}
	e := RecordedEvent{
		ID:            s.id.Bytes,
		Type:          eventType,
		StreamID:      s.streamID,
		Version:       s.version,
		Position:      Position(s.position),
		Data:          s.keep(s.data),
		Metadata:      s.keep(s.metadata),
		CausationID:   uuid.NullUUID{UUID: s.causation.Bytes, Valid: s.causation.Valid},
		CorrelationID: uuid.NullUUID{UUID: s.correlation.Bytes, Valid: s.correlation.Valid},
		RecordedAt:    s.recordedAt.Time,
	}
	return e
}

// Small values are kept many to a piece of memory: one that stays keeps at most so
// much from being freed. The first piece is for one event.
const (
	maxRoom   = 4 << 10
	firstRoom = 256
	roomShare = maxRoom / 8
)

// keep copies a value of the row.
func (s *eventScan) keep(value []byte) []byte {
	n := len(value)
	switch {
	case value == nil:
		return nil
	case n > roomShare:
		return bytes.Clone(value)
	case n > len(s.room):
		s.made = min(max(2*s.made, firstRoom, n), maxRoom)
		s.room = make([]byte, s.made)
	}
	kept := s.room[:n:n]
	s.room = s.room[n:]
	copy(kept, value)
	return kept
}

// Head returns the position that was given out last, 0 in an empty store. It
// can lie above every event, once events were deleted for good.
func Head(ctx context.Context, db DB) (Position, error) {
	var head int64
	err := db.QueryRow(ctx, headSQL).Scan(&head)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, errNoAllRow
	}
	return Position(head), storeError(err)
}

func checkLimit(limit int) error {
	if limit < 1 {
		return &ArgumentError{Argument: "limit", Problem: "must be at least 1"}
	}
	return nil
}
