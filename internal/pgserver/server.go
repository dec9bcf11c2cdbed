package pgserver

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"github.com/jackc/pgx/v5"
)

//go:embed sql/create_database_command.sql
var createDatabaseCommandSQL string

//go:embed sql/drop_database_command.sql
var dropDatabaseCommandSQL string

// Server is a PostgreSQL server. Its methods are safe for concurrent use.
type Server struct {
	// url is the connection string of a server that is not ours.
	url string

	mu      sync.Mutex
	local   *local
	stopped bool
}

// Configured reports whether DATABASE_URL names a server, so that Open starts
// none.
func Configured() bool { return os.Getenv(EnvURL) != "" }

// Open returns the server that DATABASE_URL names, when it is set and answers,
// else a throwaway server as Start does. Stop of the former leaves it alone.
func Open(ctx context.Context) (*Server, error) {
	if !Configured() {
		return Start(ctx, Options{})
	}
	s := &Server{url: os.Getenv(EnvURL)}
	if _, err := withDatabase(s.url, "postgres"); err != nil {
		return nil, fmt.Errorf("pgserver: %s: %w", EnvURL, err)
	}
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return nil, fmt.Errorf("pgserver: %s: %w", EnvURL, err)
	}
	return s, conn.Close(ctx)
}

// Start starts a server of our own and returns when it answers. The end of
// ctx stops the attempt, not the server: call Stop, or let the process end.
// It may download the programs first, see the package comment. It fails with
// a *NotFoundError when there are none and a *StartError when they fail.
func Start(ctx context.Context, o Options) (*Server, error) {
	l, err := startLocal(ctx, o)
	if err != nil {
		return nil, err
	}
	return &Server{local: l}, nil
}

// External reports whether the server is one that DATABASE_URL names.
func (s *Server) External() bool { return s.url != "" }

// DSN returns a connection string for a database of the server, which need
// not exist. "postgres" is one that does on a server of our own.
func (s *Server) DSN(database string) string {
	if !s.External() {
		return s.local.dsn(database)
	}
	// Open has parsed it.
	dsn, _ := withDatabase(s.url, database)
	return dsn
}

// AdminDSN returns a connection string for a database that exists whatever
// happens to the others, from which they are created and dropped.
func (s *Server) AdminDSN() string {
	if s.External() {
		return s.url
	}
	return s.local.dsn("postgres")
}

// CreateDatabase creates a database as a copy of template and returns its
// connection string. An empty template makes an empty database. Nobody may be
// connected to the template meanwhile.
func (s *Server) CreateDatabase(ctx context.Context, name, template string) (dsn string, err error) {
	if template == "" {
		template = "template0"
	}
	if err := s.command(ctx, createDatabaseCommandSQL, name, template); err != nil {
		return "", fmt.Errorf("pgserver: create database %s: %w", name, err)
	}
	return s.DSN(name), nil
}

// DropDatabase drops a database and ends the sessions in it. One that does
// not exist is no error.
func (s *Server) DropDatabase(ctx context.Context, name string) error {
	if err := s.command(ctx, dropDatabaseCommandSQL, name); err != nil {
		return fmt.Errorf("pgserver: drop database %s: %w", name, err)
	}
	return nil
}

// command lets the server quote the names in a command that takes no
// parameters, and runs it.
func (s *Server) command(ctx context.Context, sql string, args ...any) error {
	conn, err := pgx.Connect(ctx, s.AdminDSN())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var command string
	if err := conn.QueryRow(ctx, sql, args...).Scan(&command); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, command)
	return err
}

// Restart stops the server as an operator would, when it runs, and starts it
// with the same data, socket and port. It returns when the server answers.
func (s *Server) Restart(ctx context.Context) error {
	return s.withLocal(func(l *local) error { return l.restart(ctx) })
}

// Kill crashes the server: sessions end at once, nothing is written. It stays
// down until Restart, which then recovers the data.
func (s *Server) Kill(context.Context) error {
	return s.withLocal((*local).crash)
}

func (s *Server) withLocal(f func(*local) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.External():
		return ErrExternal
	case s.stopped:
		return ErrStopped
	}
	return f(s.local)
}

// Stop ends the server and removes its directory; kept data are closed in
// good order. It leaves a server of DATABASE_URL alone. Calls after the first
// do nothing.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.External() || s.stopped {
		return nil
	}
	s.stopped = true
	return s.local.stop()
}

// Tool returns the path of a client program such as pg_dump: the one beside
// the server's programs, else the one in PATH.
func (s *Server) Tool(name string) (string, error) {
	if !s.External() {
		if p := filepath.Join(s.local.bin(), name); isFile(p) {
			return p, nil
		}
	}
	return exec.LookPath(name)
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
