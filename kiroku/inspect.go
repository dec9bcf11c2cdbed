package kiroku

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Origin says who made the event store of a database.
type Origin string

// The origins, in the order in which they are looked for.
const (
	// OriginPgMigrate: kiroku's own tool, as its ledger says.
	OriginPgMigrate Origin = "pg-migrate"
	// OriginCodd: kiroku's own tool of before, as its ledger says.
	OriginCodd Origin = "codd"
	// OriginSuisha: [Migrate].
	OriginSuisha Origin = "suisha"
	// OriginUnknown: there is a schema kiroku, and nobody said where from.
	OriginUnknown Origin = "unknown"
	// OriginAbsent: there is no schema kiroku.
	OriginAbsent Origin = "absent"
)

// Installation is what a database says about its event store.
type Installation struct {
	Origin Origin
	// Through is the last of kiroku's migrations 1 to 11 that the ledger or our
	// own marker names; 0 if nothing says it.
	Through int
	// Pending names those up to 0011 that its tool has not applied. The store
	// works without them.
	Pending []string
	// Newer names migrations after 0011. Only the structure of the schema can
	// tell whether it works with this version.
	Newer []string
	// Withdrawn: 0010 is the one that kiroku 0.3.2 shipped and took back. It
	// works; kiroku has a script that straightens its ledger.
	Withdrawn bool
}

// oldestServer has what the schema needs: views with security_invoker.
const oldestServer = 150000

// Inspect finds out who made the event store and how far. It only reads. A
// ledger that forbids to use the schema is a [*LedgerError].
func Inspect(ctx context.Context, db DB) (Installation, error) {
	var (
		version                                int
		schema, ledger, codd, coddOld, markers bool
	)
	err := db.QueryRow(ctx, inspectSQL).Scan(&version, &schema, &ledger, &codd, &coddOld, &markers)
	if err != nil {
		return Installation{}, fmt.Errorf("kiroku: inspect: %w", err)
	}
	if version < oldestServer {
		return Installation{}, &SchemaError{
			Object: "server", Problem: fmt.Sprintf("is PostgreSQL %d", version/10000), Cure: "use PostgreSQL 15 or later",
		}
	}
	if ledger {
		rows, err := collect[ledgerRow](ctx, db, inspectLedgerSQL)
		if err != nil {
			return Installation{}, fmt.Errorf("kiroku: read ledger %s: %w", ledgerPgMigrate, err)
		}
		if len(rows) > 0 {
			return judgeLedger(rows)
		}
	}
	for _, l := range []struct {
		there      bool
		table, sql string
	}{{codd, "codd.sql_migrations", inspectCoddSQL}, {coddOld, "codd_schema.sql_migrations", inspectCoddSchemaSQL}} {
		if !l.there {
			continue
		}
		if found, known, err := inspectCodd(ctx, db, l.table, l.sql); known || err != nil {
			return found, err
		}
	}
	switch {
	case !schema:
		return Installation{Origin: OriginAbsent}, nil
	case markers:
		return inspectMarker(ctx, db)
	default:
		return Installation{Origin: OriginUnknown}, nil
	}
}

func inspectCodd(ctx context.Context, db DB, table, sql string) (Installation, bool, error) {
	rows, err := db.Query(ctx, sql)
	if err != nil {
		return Installation{}, false, fmt.Errorf("kiroku: read ledger %s: %w", table, err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return Installation{}, false, fmt.Errorf("kiroku: read ledger %s: %w", table, err)
	}
	return judgeCodd(table, names)
}

func inspectMarker(ctx context.Context, db DB) (Installation, error) {
	found := Installation{Origin: OriginSuisha}
	err := db.QueryRow(ctx, inspectMarkerSQL).Scan(&found.Through)
	if errors.Is(err, pgx.ErrNoRows) {
		return Installation{Origin: OriginUnknown}, nil
	}
	if err != nil {
		return Installation{}, fmt.Errorf("kiroku: read suisha.kiroku_install: %w", err)
	}
	return found, nil
}

// collect reads rows into structs by the order of their fields.
func collect[T any](ctx context.Context, db DB, sql string, args ...any) ([]T, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[T])
}
