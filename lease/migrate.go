package lease

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/internal/migrate"
)

//go:embed migrations
var migrations embed.FS

const (
	component = "lease"
	shardDDL  = "migrations/keiro/shards.sql"
	keiroCure = "let keiro's own migrations finish (0009 or later), or use another database"
)

// Schema is the SQL of the schemas keiro and suisha: keiro/shards.sql for
// databases that keiro has not migrated, and suisha/NNNN_name.sql in order.
func Schema() fs.FS {
	sub, err := fs.Sub(migrations, "migrations")
	if err != nil { // the path is a constant
		panic(err)
	}
	return sub
}

// Grants gives the statements that let a role run workers, for somebody who may
// grant. The role needs no more than this in the schemas keiro and suisha.
func Grants(role string) (string, error) {
	if role == "" || strings.ContainsRune(role, 0) {
		return "", &ConfigError{Field: "role", Value: role, Rule: "must be the name of a database role"}
	}
	return fmt.Sprintf(grantsSQL, pgx.Identifier{role}.Sanitize()), nil
}

// Migrate creates what is missing of the schemas keiro and suisha, and verifies
// what is there. A table that keiro's own migrations made is adopted as it is:
// no DDL runs in keiro then, and none at all when nothing is missing. It is one
// transaction; concurrent calls wait for each other.
//
// Errors: [*SchemaError] when keiro's table has another shape (all differences
// joined), [*PrivilegeError], or the database's.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	steps, err := migrate.Read(migrations, "migrations/suisha")
	if err != nil {
		return fmt.Errorf("lease: %w", err)
	}
	return pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if err := migrateKeiro(ctx, tx); err != nil {
			return err
		}
		if _, err := migrate.Apply(ctx, tx, component, steps); err != nil {
			return fmt.Errorf("lease: %w", typed(err))
		}
		return nil
	})
}

func migrateKeiro(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, schemaLockSQL); err != nil {
		return fmt.Errorf("lease: lock: %w", typed(err))
	}
	var present, shards, others bool
	if err := tx.QueryRow(ctx, schemaStateSQL).Scan(&present, &shards, &others); err != nil {
		return fmt.Errorf("lease: schema: %w", typed(err))
	}
	switch {
	case shards:
		return verifyKeiro(ctx, tx)
	case others:
		return &SchemaError{
			Object: "keiro.keiro_subscription_shards", Cure: keiroCure,
			Problem: "is missing, though the schema holds other tables",
		}
	}
	if !present {
		if _, err := tx.Exec(ctx, schemaCreateSQL); err != nil {
			return fmt.Errorf("lease: create schema keiro: %w", typed(err))
		}
	}
	ddl, err := fs.ReadFile(migrations, shardDDL)
	if err != nil {
		return fmt.Errorf("lease: %w", err)
	}
	if _, err := tx.Exec(ctx, string(ddl)); err != nil {
		return fmt.Errorf("lease: create keiro's table: %w", typed(err))
	}
	return verifyKeiro(ctx, tx)
}

// What keiro's table is made of (S-20), as PostgreSQL writes it.
var (
	keiroColumns = []string{
		"subscription_name text not null",
		"bucket integer not null",
		"shard_count integer not null",
		"owner_worker_id uuid",
		"lease_expires_at timestamp with time zone",
		"heartbeat_at timestamp with time zone",
		"updated_at timestamp with time zone not null default now()",
	}
	keiroConstraints = []string{
		"CHECK (((bucket >= 0) AND (bucket < shard_count)))",
		"CHECK ((shard_count >= 1))",
		"PRIMARY KEY (subscription_name, bucket)",
	}
	keiroIndexes = []string{
		"subscription_name, bucket",
		"subscription_name, lease_expires_at",
		"subscription_name, owner_worker_id",
	}
)

// verifyKeiro names every difference. An additional index, a nullable column or
// one with a default does us no harm, and is let pass.
func verifyKeiro(ctx context.Context, tx pgx.Tx) error {
	columns, err := readColumns(ctx, tx)
	if err != nil {
		return err
	}
	constraints, err := readTexts(ctx, tx, schemaConstraintsSQL)
	if err != nil {
		return err
	}
	indexes, err := readTexts(ctx, tx, schemaIndexesSQL)
	if err != nil {
		return err
	}
	var errs []error
	differs := func(format string, args ...any) {
		errs = append(errs, &SchemaError{
			Object: "keiro.keiro_subscription_shards", Problem: fmt.Sprintf(format, args...), Cure: keiroCure,
		})
	}
	for _, want := range keiroColumns {
		if !slices.Contains(columns, want) {
			differs("no column %q", want)
		}
	}
	for _, have := range columns {
		known := slices.Contains(keiroColumns, have)
		if !known && strings.Contains(have, " not null") && !strings.Contains(have, " default ") {
			differs("column %q is unknown here and must be filled", have)
		}
	}
	for _, want := range keiroConstraints {
		if !slices.Contains(constraints, want) {
			differs("no constraint %q", want)
		}
	}
	for _, want := range keiroIndexes {
		if !slices.Contains(indexes, want) {
			differs("no index on (%s)", want)
		}
	}
	return errors.Join(errs...)
}

func readColumns(ctx context.Context, tx pgx.Tx) ([]string, error) {
	rows, err := tx.Query(ctx, schemaColumnsSQL)
	if err != nil {
		return nil, fmt.Errorf("lease: schema: %w", typed(err))
	}
	columns, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		var name, kind, fallback string
		var required bool
		if err := row.Scan(&name, &kind, &required, &fallback); err != nil {
			return "", err
		}
		text := name + " " + kind
		if required {
			text += " not null"
		}
		if fallback != "" {
			text += " default " + fallback
		}
		return text, nil
	})
	if err != nil {
		return nil, fmt.Errorf("lease: schema: %w", typed(err))
	}
	return columns, nil
}

func readTexts(ctx context.Context, tx pgx.Tx, sql string) ([]string, error) {
	rows, err := tx.Query(ctx, sql)
	if err != nil {
		return nil, fmt.Errorf("lease: schema: %w", typed(err))
	}
	texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("lease: schema: %w", typed(err))
	}
	return texts, nil
}
