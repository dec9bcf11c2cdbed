package pgtest

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/suisha-go/suisha/internal/pgserver"
)

//go:embed sql/seal_command.sql
var sealCommandSQL string

// template is a database that one migrate function made.
type template struct {
	mu   sync.Mutex
	name string
	// users counts the tests that were cloned from it and still run.
	users int
}

// templates holds one template per migrate function, by its code.
var templates = struct {
	mu sync.Mutex
	of map[uintptr]*template
}{of: map[uintptr]*template{}}

func templateOf(migrate Migrate) *template {
	templates.mu.Lock()
	defer templates.mu.Unlock()
	key := reflect.ValueOf(migrate).Pointer()
	if templates.of[key] == nil {
		templates.of[key] = &template{}
	}
	return templates.of[key]
}

var (
	// run tells this process's databases from those of others.
	run     = uuid.New()
	counter atomic.Int64
)

// databaseName returns a name that nobody else uses.
func databaseName() string {
	return fmt.Sprintf("suisha_test_%x_%d", run[:6], counter.Add(1))
}

// acquireTemplate returns the name of the template that migrate makes, and
// what to call when the clone is gone.
func acquireTemplate(ctx context.Context, s *pgserver.Server, migrate Migrate) (name string, release func(context.Context) error, err error) {
	if migrate == nil {
		return "", func(context.Context) error { return nil }, nil
	}
	t := templateOf(migrate)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.name == "" {
		if err := t.make(ctx, s, migrate); err != nil {
			return "", nil, err
		}
	}
	t.users++
	return t.name, func(ctx context.Context) error { return t.release(ctx, s) }, nil
}

// make creates and migrates the database, and closes it to everybody, because
// a database with a session in it cannot be cloned.
func (t *template) make(ctx context.Context, s *pgserver.Server, migrate Migrate) error {
	name := databaseName()
	dsn, err := s.CreateDatabase(ctx, name, "")
	if err != nil {
		return err
	}
	if err := fill(ctx, dsn, migrate); err != nil {
		return errors.Join(fmt.Errorf("migrate: %w", err), s.DropDatabase(ctx, name))
	}
	if err := seal(ctx, s, name); err != nil {
		return errors.Join(err, s.DropDatabase(ctx, name))
	}
	t.name = name
	return nil
}

func fill(ctx context.Context, dsn string, migrate Migrate) error {
	pool, err := connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	return migrate(ctx, pool)
}

// seal closes the database to new sessions.
func seal(ctx context.Context, s *pgserver.Server, name string) error {
	conn, err := pgx.Connect(ctx, s.AdminDSN())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var command string
	if err := conn.QueryRow(ctx, sealCommandSQL, name).Scan(&command); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, command)
	return err
}

// release drops the template with its last user when the server is not ours:
// nothing runs at the end of a test process that could do it then.
func (t *template) release(ctx context.Context, s *pgserver.Server) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.users--
	if t.users > 0 || !s.External() {
		return nil
	}
	name := t.name
	t.name = ""
	return s.DropDatabase(ctx, name)
}
