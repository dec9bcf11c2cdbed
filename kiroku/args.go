package kiroku

import (
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// uuidArray passes ids as uuid[] without a copy of each: pgx would go through
// the text form of uuid.UUID. It is for one statement at a time.
type uuidArray struct {
	ids     []uuid.UUID
	element pgtype.UUID
}

func (a *uuidArray) Dimensions() []pgtype.ArrayDimension {
	return []pgtype.ArrayDimension{{Length: int32(len(a.ids)), LowerBound: 1}}
}

func (a *uuidArray) Index(i int) any {
	a.element = pgtype.UUID{Bytes: a.ids[i], Valid: true}
	return &a.element
}

func (a *uuidArray) IndexType() any { return &a.element }
