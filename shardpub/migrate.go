package shardpub

import (
	"context"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/lease"
)

// Migrate brings the database to what this version needs. It is the only place
// that runs DDL; nothing else ever does. It is idempotent and safe to run from
// many processes at once.
//
// Schema kiroku, the event store: installed on a fresh database; one that
// kiroku's own tool migrated is verified and never altered; anything else is
// refused with a *kiroku.SchemaError. Schema keiro, the lease table: installed
// or verified, never altered. Schema suisha is ours.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	if err := kiroku.Migrate(ctx, pool); err != nil {
		return fmt.Errorf("migrate kiroku: %w", err)
	}
	if err := lease.Migrate(ctx, pool); err != nil {
		return fmt.Errorf("migrate leases: %w", err)
	}
	return nil
}

// Schemas are the SQL files that Migrate runs on a fresh database, for tools of
// your own: first those of "kiroku", then those of "lease", in order of names.
func Schemas() map[string]fs.FS {
	return map[string]fs.FS{"kiroku": kiroku.Schema(), "lease": lease.Schema()}
}

// Grants are the statements that let a role publish and subscribe, and nothing
// more.
func Grants(role string) (string, error) {
	events, err := kiroku.Grants(role)
	if err != nil {
		return "", err
	}
	leases, err := lease.Grants(role)
	if err != nil {
		return "", err
	}
	return events + "\n" + leases, nil
}
