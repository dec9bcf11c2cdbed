package kiroku

import (
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// uuidArray passes ids as uuid[]. pgx would take uuid.UUID for a text where it
// does not ask the server.
func uuidArray(ids []uuid.UUID) pgtype.FlatArray[pgtype.UUID] {
	out := make(pgtype.FlatArray[pgtype.UUID], len(ids))
	for i, id := range ids {
		out[i] = pgtype.UUID{Bytes: id, Valid: true}
	}
	return out
}

func nullUUID(id uuid.NullUUID) pgtype.UUID { return pgtype.UUID{Bytes: id.UUID, Valid: id.Valid} }
