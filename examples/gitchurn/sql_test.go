package main

import (
	"context"
	"embed"
	"io/fs"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/examples/gitchurn/internal/projection"
	"github.com/suisha-go/suisha/internal/pgtest"
	"github.com/suisha-go/suisha/shardpub"
)

//go:embed sql internal/projection/sql internal/verify/sql
var statements embed.FS

func migrate(ctx context.Context, pool *pgxpool.Pool) error {
	if err := shardpub.Migrate(ctx, pool); err != nil {
		return err
	}
	return projection.Install(ctx, pool)
}

func TestEveryStatementIsPreparedOnTheMigratedSchema(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, migrate)
	err := fs.WalkDir(statements, ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		sql, err := statements.ReadFile(path)
		if err != nil {
			return err
		}
		rewritten, _, err := pgx.NamedArgs{}.RewriteQuery(t.Context(), nil, string(sql), nil)
		if err != nil {
			return err
		}
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			return err
		}
		defer conn.Release()
		if _, err := conn.Conn().Prepare(t.Context(), path, rewritten); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
