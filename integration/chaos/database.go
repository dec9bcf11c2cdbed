//go:build unix

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/internal/pgserver"
	"github.com/suisha-go/suisha/shardpub"
)

//go:embed sql/schema.sql
var schemaSQL string

//go:embed sql/progress.sql
var progressSQL string

//go:embed sql/handled.sql
var handledSQL string

//go:embed sql/shares.sql
var sharesSQL string

const databaseName = "chaos"

// database is the server of this run, and our own way to it past all proxies.
type database struct {
	server *pgserver.Server
	pool   *pgxpool.Pool
}

// openDatabase starts a server of our own. A crash of it loses nothing that was
// committed: only the machine must not crash.
func openDatabase(ctx context.Context) (*database, error) {
	server, err := pgserver.Start(ctx, pgserver.Options{
		MaxConnections: 400,
		Settings:       map[string]string{"synchronous_commit": "on", "log_min_messages": "fatal"},
	})
	if err != nil {
		return nil, err
	}
	d := &database{server: server}
	if err := d.migrate(ctx); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

func (d *database) migrate(ctx context.Context) error {
	dsn, err := d.server.CreateDatabase(ctx, databaseName, "")
	if err != nil {
		return err
	}
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return err
	}
	config.MaxConns = 12
	config.ConnConfig.RuntimeParams["application_name"] = "parent"
	if d.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	if err := shardpub.Migrate(ctx, d.pool); err != nil {
		return err
	}
	_, err = d.pool.Exec(ctx, schemaSQL)
	return err
}

func (d *database) close() {
	if d.pool != nil {
		d.pool.Close()
	}
	_ = d.server.Stop()
}

// sessions opens so many beside the pool, which is too small for them and which
// the load needs. They are fewer when the server goes down meanwhile.
func (d *database) sessions(ctx context.Context, n int) []*pgx.Conn {
	var all []*pgx.Conn
	for range n {
		conn, err := pgx.ConnectConfig(ctx, d.pool.Config().ConnConfig)
		if err != nil {
			break
		}
		all = append(all, conn)
	}
	return all
}

// socket is where the server listens.
func (d *database) socket() string {
	c := d.pool.Config().ConnConfig
	return filepath.Join(c.Host, ".s.PGSQL."+strconv.Itoa(int(c.Port)))
}

// dsn is how a worker reaches the server through its proxy.
func (d *database) dsn(port int, name string) string {
	return fmt.Sprintf("host=127.0.0.1 port=%d user=postgres dbname=%s sslmode=disable connect_timeout=5 application_name=%s", port, databaseName, name)
}

func (d *database) fleet(o options) *fleet {
	return &fleet{
		base:     workerSpec{Buckets: o.buckets, Concurrency: o.concurrency, Batch: o.batch, Work: o.work, TTL: o.ttl, Renew: o.renew},
		upstream: d.socket(),
		dsn:      d.dsn,
	}
}

// patiently does something again until the server is there, for a minute at most.
func patiently(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		once, end := context.WithTimeout(ctx, 15*time.Second)
		err := f(once)
		end()
		if err == nil {
			return nil
		}
		if !pause(ctx, 200*time.Millisecond) {
			return errors.Join(err, ctx.Err())
		}
	}
}

// pause waits; false when ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// progress is how many events there are, and the position of the last.
func (d *database) progress(ctx context.Context) (events, last int64, err error) {
	err = d.pool.QueryRow(ctx, progressSQL).Scan(&events, &last)
	return events, last, err
}

// handled is how many events are done, and how far the slowest checkpoint is.
func (d *database) handled(ctx context.Context) (done, slowest int64, err error) {
	err = d.pool.QueryRow(ctx, handledSQL, subscription).Scan(&done, &slowest)
	return done, slowest, err
}

// shares is how many buckets each worker owns.
func (d *database) shares(ctx context.Context) (map[string]int, error) {
	rows, err := d.pool.Query(ctx, sharesSQL, subscription)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	owned := map[string]int{}
	for rows.Next() {
		var name string
		var n int
		if err := rows.Scan(&name, &n); err != nil {
			return nil, err
		}
		owned[name] = n
	}
	return owned, rows.Err()
}

// ask returns the one column of a question.
func ask[T any](ctx context.Context, d *database, sql string, args ...any) ([]T, error) {
	rows, err := d.pool.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[T])
}
