package bench

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/internal/pgserver"
	"github.com/suisha-go/suisha/shardpub"
)

//go:embed sql/checkpoint_command.sql
var checkpointCommandSQL string

//go:embed sql/version.sql
var versionSQL string

//go:embed sql/statistics_command.sql
var statisticsCommandSQL string

//go:embed sql/commit_table.sql
var commitTableSQL string

//go:embed sql/commit_once.sql
var commitOnceSQL string

// settings are what the server of a run is started with; all else is
// PostgreSQL's default. Every commit reaches the disk.
var settings = map[string]string{
	"shared_buffers":           "1GB",
	"max_wal_size":             "4GB",
	"checkpoint_timeout":       "30min",
	"shared_preload_libraries": "pg_stat_statements",
	"log_min_messages":         "fatal",
}

const maxConnections = 400

// Server is the PostgreSQL that all cases of a run use.
type Server struct {
	pg    *pgserver.Server
	dir   string
	admin *pgxpool.Pool
	// Counts is whether statements can be counted.
	Counts bool

	filling   sync.Mutex // guards templates
	templates map[string]string
	number    atomic.Int64 // of the latest database

	sharing sync.Mutex // guards shared
	shared  map[Load]*DB
}

// StartServer starts a server that syncs to disk, or uses the one that
// DATABASE_URL names.
func StartServer(ctx context.Context) (*Server, error) {
	s := &Server{templates: map[string]string{}, shared: map[Load]*DB{}}
	var err error
	if pgserver.Configured() {
		s.pg, err = pgserver.Open(ctx)
	} else {
		if s.dir, err = os.MkdirTemp("", "suisha-bench-"); err != nil {
			return nil, err
		}
		// The server may run under another account, which takes it over.
		if err := os.Chmod(s.dir, 0o755); err != nil { //nolint:gosec // G302: nothing is in it yet
			return nil, errors.Join(err, s.removeDir())
		}
		s.pg, err = pgserver.Start(ctx, pgserver.Options{Dir: s.dir, Durable: true, MaxConnections: maxConnections, Settings: settings})
	}
	if err != nil {
		return nil, errors.Join(err, s.removeDir())
	}
	if s.admin, err = pgxpool.New(ctx, s.pg.AdminDSN()); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	_, err = s.admin.Exec(ctx, statisticsCommandSQL)
	s.Counts = err == nil
	return s, nil
}

// Stop ends it and removes its data. Databases on a server that is not ours are
// dropped one by one, by whoever made them, and templates here.
func (s *Server) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var errs []error
	for _, d := range s.shared {
		d.Close()
	}
	if s.pg.External() {
		for _, name := range s.templates {
			errs = append(errs, s.pg.DropDatabase(ctx, name))
		}
	}
	if s.admin != nil {
		s.admin.Close()
	}
	return errors.Join(append(errs, s.pg.Stop(), s.removeDir())...)
}

func (s *Server) removeDir() error {
	if s.dir == "" {
		return nil
	}
	return os.RemoveAll(s.dir)
}

// About says what the server is and how long a commit of one row takes.
func (s *Server) About(ctx context.Context) (version string, commit time.Duration, err error) {
	if err := s.admin.QueryRow(ctx, versionSQL).Scan(&version); err != nil {
		return "", 0, err
	}
	db, err := s.Empty(ctx)
	if err != nil {
		return "", 0, err
	}
	defer db.Close()
	if _, err := db.Pool.Exec(ctx, commitTableSQL); err != nil {
		return "", 0, err
	}
	var all []float64
	for range 100 {
		began := time.Now()
		if _, err := db.Pool.Exec(ctx, commitOnceSQL); err != nil {
			return "", 0, err
		}
		all = append(all, float64(time.Since(began)))
	}
	return version, time.Duration(median(all)), nil
}

// DB is a database of one case.
type DB struct {
	Name, DSN string
	// Pool is made like any user's, with pgx's defaults.
	Pool *pgxpool.Pool

	server *Server
}

// Connect makes another pool like Pool.
func (d *DB) Connect(ctx context.Context, conns int32) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(d.DSN)
	if err != nil {
		return nil, err
	}
	config.MaxConns = conns
	return pgxpool.NewWithConfig(context.WithoutCancel(ctx), config)
}

// Close drops it.
func (d *DB) Close() {
	if d.Pool != nil {
		d.Pool.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_ = d.server.pg.DropDatabase(ctx, d.Name)
}

// Empty makes an empty database.
func (s *Server) Empty(ctx context.Context) (*DB, error) { return s.create(ctx, "") }

func (s *Server) create(ctx context.Context, template string) (*DB, error) {
	d := &DB{Name: fmt.Sprintf("suisha_bench_%d_%d", os.Getpid(), s.number.Add(1)), server: s}
	var err error
	if d.DSN, err = s.pg.CreateDatabase(ctx, d.Name, template); err != nil {
		return nil, err
	}
	if d.Pool, err = pgxpool.New(context.WithoutCancel(ctx), d.DSN); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// Loaded makes a database with events, as a copy of one that is loaded once per
// run, and brings it into memory.
func (s *Server) Loaded(ctx context.Context, l Load) (*DB, error) {
	d, err := s.Prepared(ctx, fmt.Sprintf("%+v", l), func(ctx context.Context, d *DB) error {
		if err := shardpub.Migrate(ctx, d.Pool); err != nil {
			return err
		}
		return l.into(ctx, d.Pool)
	})
	if err != nil {
		return nil, err
	}
	if err := warm(ctx, d.Pool); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// Prepared makes a database as a copy of one that fill fills once per run. The
// key says what it is filled with.
func (s *Server) Prepared(ctx context.Context, key string, fill func(context.Context, *DB) error) (*DB, error) {
	template, err := s.template(ctx, key, fill)
	if err != nil {
		return nil, fmt.Errorf("prepare %s: %w", key, err)
	}
	d, err := s.create(ctx, template)
	if err != nil {
		return nil, err
	}
	if err := s.Settle(ctx); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// template makes the database that others are copied from.
func (s *Server) template(ctx context.Context, key string, fill func(context.Context, *DB) error) (string, error) {
	s.filling.Lock()
	defer s.filling.Unlock()
	if name := s.templates[key]; name != "" {
		return name, nil
	}
	d, err := s.Empty(ctx)
	if err != nil {
		return "", err
	}
	if err := fill(ctx, d); err != nil {
		d.Close()
		return "", err
	}
	d.Pool.Close() // nobody may be connected to a template
	s.templates[key] = d.Name
	return d.Name, nil
}

// Settle writes out what is dirty, so that no case pays for the one before it.
// An account that may not do that goes without.
func (s *Server) Settle(ctx context.Context) error {
	_, err := s.admin.Exec(ctx, checkpointCommandSQL, pgx.QueryExecModeSimpleProtocol)
	if ctx.Err() == nil {
		return nil // it needs a role that not everybody has
	}
	return err
}
