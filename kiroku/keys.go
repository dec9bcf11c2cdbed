package kiroku

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"
)

// ReadKeys reads up to limit keys of [AllStreams] after a position, in order.
// It is the cheapest way through the log: one index scan of known plan, three
// buffers when there is nothing new. A page that ends below limit ended at the
// end of the log as the statement saw it. Read from the primary.
func ReadKeys(ctx context.Context, db DB, after Position, limit int) ([]Key, error) {
	return ReadKeysFrom(ctx, db, after+1, limit)
}

// ReadKeysFrom is ReadKeys with the key at the position itself, if there is one:
// by it a reader knows the log again.
func ReadKeysFrom(ctx context.Context, db DB, from Position, limit int) ([]Key, error) {
	if err := checkLimit(limit); err != nil {
		return nil, err
	}
	return readKeys(ctx, db, limit, readKeysSQL, int64(from), limit)
}

// fewKeys is more than a page has that was read because of a notification. A page of
// more is likely to be full.
const fewKeys = 64

// maxKeyRoom bounds the room that is made for keys before they come.
const maxKeyRoom = 10_000

func readKeys(ctx context.Context, db DB, room int, sql string, args ...any) ([]Key, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, storeError(err)
	}
	defer rows.Close()
	var (
		out                         []Key
		position, streamID, version int64
		id                          pgtype.UUID
	)
	dest := []any{&position, &streamID, &version, &id}
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return nil, err
		}
		if len(out) == fewKeys {
			out = slices.Grow(out, max(min(room, maxKeyRoom)-fewKeys, fewKeys))
		}
		out = append(out, Key{Position: Position(position), StreamID: streamID, Version: version, EventID: id.Bytes})
	}
	return out, storeError(rows.Err())
}

// KeysAt reads the keys at some positions, in order. Positions where nothing is
// (any more) are left out.
func KeysAt(ctx context.Context, db DB, at []Position) ([]Key, error) {
	if len(at) == 0 {
		return nil, nil
	}
	positions := make([]int64, len(at))
	for i, p := range at {
		positions[i] = int64(p)
	}
	return readKeys(ctx, db, len(at), keysAtSQL, positions)
}

// LookupStreams reads what never changes about streams, in no order. Ids that
// the store does not hold are left out.
func LookupStreams(ctx context.Context, db DB, ids []int64) ([]Stream, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := db.Query(ctx, lookupStreamsSQL, ids)
	if err != nil {
		return nil, storeError(err)
	}
	defer rows.Close()
	out := make([]Stream, 0, len(ids))
	var s Stream
	dest := []any{&s.ID, &s.Name, &s.Category, &s.Hash}
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, storeError(rows.Err())
}
