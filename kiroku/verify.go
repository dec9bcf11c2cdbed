package kiroku

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const (
	cureInstall = "call shardpub.Migrate, or kiroku.Migrate for the store alone, on a database without schema kiroku; or run kiroku-store-migrate up"
	cureRestore = "restore it as kiroku's migrations made it"
)

var errNoAllRow error = &SchemaError{Object: "row 0 of kiroku.streams", Problem: "is missing", Cure: cureRestore}

// Verify checks that the event store has all that this package depends on:
// columns, types, keys, triggers, the row of [AllStreams]. Each failure is a
// [*SchemaError], all are joined. More may be there; what kiroku has for others
// (the view on checkpoints, retention leases) may be missing. It reads the
// catalog and one row, changes nothing, and costs five statements.
func Verify(ctx context.Context, db DB) error {
	foundColumns, err := collect[column](ctx, db, verifyColumnsSQL)
	if err != nil {
		return fmt.Errorf("kiroku: verify columns: %w", err)
	}
	if len(foundColumns) == 0 {
		return &SchemaError{Object: "schema kiroku", Problem: "is missing or empty", Cure: cureInstall}
	}
	foundIndexes, err := collect[index](ctx, db, verifyIndexesSQL)
	if err != nil {
		return fmt.Errorf("kiroku: verify indexes: %w", err)
	}
	foundConstraints, err := collect[constraint](ctx, db, verifyConstraintsSQL)
	if err != nil {
		return fmt.Errorf("kiroku: verify constraints: %w", err)
	}
	foundTriggers, err := collect[trigger](ctx, db, verifyTriggersSQL)
	if err != nil {
		return fmt.Errorf("kiroku: verify triggers: %w", err)
	}
	problems := compareColumns(foundColumns)
	problems = append(problems, compareIndexes(foundIndexes)...)
	problems = append(problems, compareConstraints(foundConstraints)...)
	problems = append(problems, compareTriggers(foundTriggers)...)
	if len(problems) == 0 {
		return verifyAllRow(ctx, db)
	}
	return errors.Join(problems...)
}

// verifyAllRow comes last: its statement needs the table.
func verifyAllRow(ctx context.Context, db DB) error {
	var name string
	err := db.QueryRow(ctx, verifyAllRowSQL).Scan(&name)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return errNoAllRow
	case err != nil:
		return fmt.Errorf("kiroku: verify row 0 of kiroku.streams: %w", err)
	case name != AllStreams:
		return &SchemaError{Object: "row 0 of kiroku.streams", Problem: fmt.Sprintf("is named %q", name), Cure: cureRestore}
	}
	return nil
}
