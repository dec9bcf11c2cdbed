package kiroku

import (
	"context"
	"embed"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// schemaThrough is kiroku's migration whose end state our schema is.
const schemaThrough = 11

//go:embed schema/*.sql
var schemaFiles embed.FS

// Schema is the event store as SQL, for migration tools of your own: apply the
// files in the order of their names, in one transaction, to a database that has
// no schema kiroku. [Migrate] accepts the result and leaves it alone.
func Schema() fs.FS {
	sub, err := fs.Sub(schemaFiles, "schema")
	if err != nil {
		panic(err) // the name is a constant, and valid
	}
	return sub
}

// Migrate makes sure that the database holds the event store.
//
// Without a schema kiroku it creates one, equal to what kiroku's migrations 0001
// to 0011 lead to, in one transaction, and notes in suisha.kiroku_install that
// it did. A schema that kiroku's own tool made, or somebody else, is only
// verified: not one object of it is ever changed. What cannot be used is refused
// with [*LedgerError] and [*SchemaError], joined, and nothing is written.
//
// Migrate waits for the lock of kiroku's migration tool; bound it by ctx. It may
// be called concurrently and again and again. The role must own, or be allowed to
// create, schemas kiroku and suisha where they are missing.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	options := pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}
	return pgx.BeginTxFunc(ctx, pool, options, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockMigrationsSQL); err != nil {
			return fmt.Errorf("kiroku: lock migrations: %w", err)
		}
		found, err := Inspect(ctx, tx)
		if err != nil {
			return err
		}
		if found.Origin == OriginAbsent {
			if err := install(ctx, tx); err != nil {
				return err
			}
		}
		return Verify(ctx, tx)
	})
}

func install(ctx context.Context, tx pgx.Tx) error {
	names, err := fs.Glob(schemaFiles, "schema/*.sql") // sorted
	if err != nil {
		return err
	}
	for _, name := range names {
		ddl, err := schemaFiles.ReadFile(name)
		if err != nil {
			return err
		}
		// Without arguments a file of several statements is sent as it is.
		if _, err := tx.Exec(ctx, string(ddl)); err != nil {
			return fmt.Errorf("kiroku: install %s: %w", name, err)
		}
	}
	for _, sql := range []string{installMarkerSchemaSQL, installMarkerTableSQL} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return fmt.Errorf("kiroku: mark the installation: %w", err)
		}
	}
	if _, err := tx.Exec(ctx, installMarkerRowSQL, schemaThrough); err != nil {
		return fmt.Errorf("kiroku: mark the installation: %w", err)
	}
	return nil
}
