package kiroku

import (
	"errors"
	"regexp"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
)

// The conditions that this package tells apart. Messages are never looked at:
// they come in the server's language.
const (
	sqlstateUniqueViolation      = "23505"
	sqlstateForeignKeyViolation  = "23503"
	sqlstateCheckViolation       = "23514"
	sqlstateSerializationFailure = "40001"
	sqlstateDeadlockDetected     = "40P01"
	sqlstateLockNotAvailable     = "55P03"
	// sqlstateDivisionByZero is how the append statement takes itself back.
	sqlstateDivisionByZero  = "22012"
	sqlstateUndefinedTable  = "42P01"
	sqlstateUndefinedColumn = "42703"
	sqlstateInvalidSchema   = "3F000"

	constraintEventKey       = "events_pkey"
	constraintJunctionKey    = "stream_events_pkey"
	constraintDeadLetterHome = "dead_letters_event_id_fkey"
)

var uuidPattern = regexp.MustCompile(`[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`)

func asPg(err error) (*pgconn.PgError, bool) {
	var pg *pgconn.PgError
	ok := errors.As(err, &pg)
	return pg, ok
}

// lostCreation: the append took itself back because somebody else created one
// of several new streams.
func lostCreation(err error) bool {
	pg, ok := asPg(err)
	return ok && pg.Code == sqlstateDivisionByZero
}

// lostRace: the server took the append back in favour of another transaction.
func lostRace(err error) bool {
	pg, ok := asPg(err)
	return ok && (pg.Code == sqlstateSerializationFailure || pg.Code == sqlstateDeadlockDetected)
}

// appendError types what the server said to an append.
func appendError(err error) error {
	pg, ok := asPg(err)
	if !ok {
		return err
	}
	switch pg.Code {
	case sqlstateSerializationFailure, sqlstateDeadlockDetected, sqlstateDivisionByZero, sqlstateLockNotAvailable:
		return &TransientError{Err: pg}
	case sqlstateUniqueViolation:
		if pg.ConstraintName == constraintEventKey || pg.ConstraintName == constraintJunctionKey {
			return &DuplicateEventError{EventID: firstUUID(pg.Detail), err: pg}
		}
	case sqlstateCheckViolation:
		// Names are checked before; what is left is a rule of a later kiroku.
		return errors.Join(&SchemaError{
			Object:  "constraint " + pg.ConstraintName + " on " + pg.SchemaName + "." + pg.TableName,
			Problem: "refuses what this version appends", Cure: cureOtherTool,
		}, err)
	}
	return storeError(err)
}

// storeError types what any statement may meet: a store that is not there.
func storeError(err error) error {
	pg, ok := asPg(err)
	if !ok {
		return err
	}
	switch pg.Code {
	case sqlstateUndefinedTable, sqlstateUndefinedColumn, sqlstateInvalidSchema:
		return errors.Join(&SchemaError{Object: "schema kiroku", Problem: "is missing or incomplete", Cure: cureInstall}, err)
	}
	return err
}

// deadLetterError types what the server said to a dead letter.
func deadLetterError(err error, letter DeadLetter) error {
	pg, ok := asPg(err)
	if ok && pg.Code == sqlstateForeignKeyViolation && pg.ConstraintName == constraintDeadLetterHome {
		return &EventGoneError{EventID: letter.EventID, Position: letter.Position, err: pg}
	}
	return storeError(err)
}

// firstUUID reads the key out of a unique violation's detail, whatever the
// language around it.
func firstUUID(detail string) uuid.UUID {
	id, err := uuid.Parse(uuidPattern.FindString(detail))
	if err != nil {
		return uuid.Nil
	}
	return id
}
