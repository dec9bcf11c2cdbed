package kiroku

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"
)

// KeysOf are keys of some categories, by [ReadKeysOf].
type KeysOf struct {
	// Keys are in order. The first may be the key at the position that was read
	// from, and the last the one at the end of the log, of whatever category.
	Keys []Key
	// End is how far they reach: every key of the categories up to it is in Keys.
	End Position
	// More says that the log goes on behind End.
	More bool
}

// ReadKeysOf reads about limit keys of the streams of some categories after a
// position, in order, past all that is not theirs. It costs an index probe per
// stream, and so is for categories of few streams in a log of much else; of more
// than maxStreams it returns false and reads nothing. Read from the primary.
//
// Where one stream has much more to come than the others, the page ends where that
// stream's part of it does.
func ReadKeysOf(ctx context.Context, db DB, categories []string, after Position, limit, maxStreams int) (k KeysOf, few bool, err error) {
	if err := checkLimit(limit); err != nil {
		return k, false, err
	}
	rows, err := db.Query(ctx, readKeysOfSQL, categories, int64(after), int64(limit), int64(maxStreams))
	if err != nil {
		return k, false, storeError(err)
	}
	defer rows.Close()
	var (
		part                        int16
		position, streamID, version int64
		id                          pgtype.UUID
		streams, each               int64
		ends, keys                  []Key
	)
	dest := []any{&part, &position, &streamID, &version, &id}
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return k, false, err
		}
		key := Key{Position: Position(position), StreamID: streamID, Version: version, EventID: id.Bytes}
		switch part {
		case 0:
			k.End, streams, each = key.Position, streamID, version
		case 1:
			ends = append(ends, key)
		default:
			keys = append(keys, key)
		}
	}
	if err := rows.Err(); err != nil || streams > int64(maxStreams) {
		return KeysOf{}, false, storeError(err)
	}
	k.cut(keys, ends, int(each), limit)
	return k, true, nil
}

// cut puts the keys in order, up to where nothing is missing. ends are the keys at
// both ends of the log that was asked for. Each stream was asked for more than its
// part of the limit: what is beyond that is left for another page.
func (k *KeysOf) cut(keys, ends []Key, each, limit int) {
	last := map[int64]Position{}
	count := map[int64]int{}
	for _, key := range keys {
		last[key.StreamID] = max(last[key.StreamID], key.Position)
		count[key.StreamID]++
	}
	for stream, n := range count {
		if n >= each && last[stream] < k.End {
			k.End, k.More = last[stream], true
		}
	}
	for _, key := range append(keys, ends...) {
		if key.Position <= k.End {
			k.Keys = append(k.Keys, key)
		}
	}
	slices.SortFunc(k.Keys, func(a, b Key) int { return cmp.Compare(a.Position, b.Position) })
	k.Keys = slices.Compact(k.Keys)
	if most := limit + 1; len(k.Keys) > most { // the one at the cursor, too
		k.Keys = k.Keys[:most]
		k.End, k.More = k.Keys[limit].Position, true
	}
}
