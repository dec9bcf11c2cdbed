// Package playground gives each example a database of its own: on the server
// that DATABASE_URL names, or on a throw-away server that ends with the program.
package playground

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/internal/pgserver"
	"github.com/suisha-go/suisha/shardpub"
)

// Open starts or finds a server, makes a database with suisha's schemas, and
// returns a pool and what cleans all of it up.
func Open(ctx context.Context) (*pgxpool.Pool, func(), error) {
	server, err := pgserver.Open(ctx)
	if err != nil {
		return nil, nil, err
	}
	name := "suisha_example_" + uuid.NewString()[:8]
	dsn, err := server.CreateDatabase(ctx, name, "")
	if err != nil {
		return nil, nil, errors.Join(err, server.Stop())
	}
	drop := func() error {
		return errors.Join(server.DropDatabase(context.WithoutCancel(ctx), name), server.Stop())
	}
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return nil, nil, errors.Join(err, drop())
	}
	closeAll := func() {
		pool.Close()
		if err := drop(); err != nil {
			fmt.Fprintln(os.Stderr, "clean up:", err)
		}
	}
	if err := shardpub.Migrate(ctx, pool); err != nil {
		closeAll()
		return nil, nil, err
	}
	return pool, closeAll, nil
}
