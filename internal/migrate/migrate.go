// Package migrate applies numbered SQL files to the schema suisha, forward only,
// and keeps a ledger of them in suisha.migrations.
package migrate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// Step is one migration: a file NNNN_name.sql. Once released it never changes.
type Step struct {
	Version int
	Name    string
	SQL     string
}

// Sum is the SHA-256 of the step's text, in hex.
func (s Step) Sum() string {
	sum := sha256.Sum256([]byte(s.SQL))
	return hex.EncodeToString(sum[:])
}

var fileName = regexp.MustCompile(`^(\d{4})_([a-z0-9_]+)\.sql$`)

// Read reads the steps from the directory dir, in order. Their numbers must be 1, 2,
// 3 and so on.
func Read(fsys fs.FS, dir string) ([]Step, error) {
	entries, err := fs.ReadDir(fsys, dir)
	if err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	var steps []Step
	for _, e := range entries { // sorted by name
		m := fileName.FindStringSubmatch(e.Name())
		if m == nil {
			return nil, fmt.Errorf("migrate: %s: want NNNN_name.sql", path.Join(dir, e.Name()))
		}
		version, err := strconv.Atoi(m[1])
		if err != nil {
			return nil, fmt.Errorf("migrate: %s: %w", e.Name(), err)
		}
		if version != len(steps)+1 {
			return nil, fmt.Errorf("migrate: %s: want number %d", e.Name(), len(steps)+1)
		}
		text, err := fs.ReadFile(fsys, path.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("migrate: %w", err)
		}
		steps = append(steps, Step{Version: version, Name: m[2], SQL: string(text)})
	}
	return steps, nil
}

// DriftError says that a step was applied in another form than this program has.
type DriftError struct {
	Component string
	Version   int
	// Applied and Expected are the name and the SHA-256 of the step in the
	// ledger and in the program.
	Applied, Expected string
}

func (e *DriftError) Error() string {
	return fmt.Sprintf("migrate: %s %04d was applied as %s, this program has %s: "+
		"a released migration never changes, so one of the two is not a release", e.Component, e.Version, e.Applied, e.Expected)
}

// GapError says that the ledger lacks a step below its newest.
type GapError struct {
	Component string
	Version   int
}

func (e *GapError) Error() string {
	return fmt.Sprintf("migrate: %s %04d is missing from the ledger, but a later one is there: "+
		"the ledger was edited, restore it", e.Component, e.Version)
}

type applied struct {
	version   int
	name, sum string
}

// Apply brings the component to its newest step inside tx and returns the
// versions that it applied. It makes the schema and the ledger if they are
// missing; when there is nothing to apply it runs no DDL. It holds an advisory
// lock until the transaction ends. Steps that the ledger has and the program
// does not are left alone: an older program runs beside a newer one.
//
// Errors: [*DriftError], [*GapError], or the database's.
func Apply(ctx context.Context, tx pgx.Tx, component string, steps []Step) ([]int, error) {
	if _, err := tx.Exec(ctx, lockSQL); err != nil {
		return nil, fmt.Errorf("migrate: lock: %w", err)
	}
	if err := createLedger(ctx, tx); err != nil {
		return nil, err
	}
	ledger, err := readLedger(ctx, tx, component)
	if err != nil {
		return nil, err
	}
	pending, err := compare(component, steps, ledger)
	if err != nil {
		return nil, err
	}
	var versions []int
	for _, s := range pending {
		if err := applyStep(ctx, tx, component, s); err != nil {
			return nil, fmt.Errorf("migrate: %s %04d_%s: %w", component, s.Version, s.Name, err)
		}
		versions = append(versions, s.Version)
	}
	return versions, nil
}

func createLedger(ctx context.Context, tx pgx.Tx) error {
	var schema, ledger bool
	if err := tx.QueryRow(ctx, stateSQL).Scan(&schema, &ledger); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if !schema {
		if _, err := tx.Exec(ctx, createSchemaSQL); err != nil {
			return fmt.Errorf("migrate: create schema: %w", err)
		}
	}
	if !ledger {
		if _, err := tx.Exec(ctx, createLedgerSQL); err != nil {
			return fmt.Errorf("migrate: create ledger: %w", err)
		}
	}
	return nil
}

func readLedger(ctx context.Context, tx pgx.Tx, component string) ([]applied, error) {
	rows, err := tx.Query(ctx, readSQL, pgx.NamedArgs{"component": component})
	if err != nil {
		return nil, fmt.Errorf("migrate: ledger: %w", err)
	}
	ledger, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (applied, error) {
		var a applied
		err := row.Scan(&a.version, &a.name, &a.sum)
		return a, err
	})
	if err != nil {
		return nil, fmt.Errorf("migrate: ledger: %w", err)
	}
	return ledger, nil
}

// compare returns the steps to apply. The ledger is in order of versions.
func compare(component string, steps []Step, ledger []applied) ([]Step, error) {
	newest := 0
	if len(ledger) > 0 {
		newest = ledger[len(ledger)-1].version
	}
	for _, s := range steps {
		i, found := slices.BinarySearchFunc(ledger, s.Version, func(a applied, v int) int { return a.version - v })
		switch {
		case found && ledger[i].sum != s.Sum():
			return nil, &DriftError{
				Component: component, Version: s.Version,
				Applied: ledger[i].name + " " + ledger[i].sum, Expected: s.Name + " " + s.Sum(),
			}
		case !found && s.Version < newest:
			return nil, &GapError{Component: component, Version: s.Version}
		case !found:
			return steps[s.Version-1:], nil
		}
	}
	return nil, nil
}

func applyStep(ctx context.Context, tx pgx.Tx, component string, s Step) error {
	// Without arguments the text may hold several statements.
	if _, err := tx.Exec(ctx, s.SQL); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, recordSQL, pgx.NamedArgs{
		"component": component, "version": s.Version, "name": s.Name, "sha256": s.Sum(),
	})
	return err
}
