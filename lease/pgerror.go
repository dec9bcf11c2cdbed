package lease

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

// SQLSTATEs that have a cure of their own.
const (
	undefinedTable        = "42P01"
	undefinedColumn       = "42703"
	invalidSchemaName     = "3F000"
	insufficientPrivilege = "42501"
)

// typed turns what the database says about a statement of ours into the error
// that names the cure. Other errors pass unchanged.
func typed(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return err
	}
	switch pg.Code {
	case undefinedTable, undefinedColumn, invalidSchemaName:
		return &SchemaError{Problem: "the schema is missing or older than this program", Cure: "run Migrate", Err: err}
	case insufficientPrivilege:
		return &PrivilegeError{Err: err}
	default:
		return err
	}
}
