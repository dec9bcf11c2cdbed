//go:build unix

package pgserver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func start(t *testing.T, o Options) *Server {
	t.Helper()
	s, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// openDir is a temporary directory that the server's account can enter, which
// t.TempDir is not.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "suisha-test-") //nolint:usetesting // t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// ask runs a query that returns one text, on a connection of its own.
func ask(t *testing.T, s *Server, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.AdminDSN())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	var out string
	if err := conn.QueryRow(t.Context(), sql).Scan(&out); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return out
}

// eventually polls until the condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Second); !condition(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

func gone(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, os.ErrNotExist)
}

func dead(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

func TestStopLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	server, shell := s.local.process.pid, s.local.guard.shell.pid
	if got := ask(t, s, "show fsync"); got != "off" {
		t.Errorf("fsync is %s, want off", got)
	}
	if got := ask(t, s, "show listen_addresses"); got != "" {
		t.Errorf("listens on %q, want no address", got)
	}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if err := s.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if !dead(server) || !dead(shell) || !gone(s.local.dir) {
		t.Errorf("left: server %v, guard %v, directory %v", !dead(server), !dead(shell), !gone(s.local.dir))
	}
	if err := s.Restart(t.Context()); !errors.Is(err, ErrStopped) {
		t.Errorf("Restart after Stop gives %v, want ErrStopped", err)
	}
}

func TestServerDoesNotRunAsRoot(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	info, err := os.Stat(filepath.Join(s.local.data, "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || stat.Uid == 0 {
		t.Error("the server runs as root")
	}
}

func TestRestartKeepsDataAndAddress(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{"socket": {}, "tcp": {TCP: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, o)
			if _, err := s.CreateDatabase(t.Context(), "kept", ""); err != nil {
				t.Fatal(err)
			}
			dsn, pid := s.DSN("kept"), s.local.process.pid
			stops := map[string]func(context.Context) error{
				"running": func(context.Context) error { return nil },
				"killed":  s.Kill,
			}
			for how, stop := range stops {
				if err := stop(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := s.Restart(t.Context()); err != nil {
					t.Fatalf("%s: %v", how, err)
				}
			}
			conn, err := pgx.Connect(t.Context(), dsn)
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.Close(t.Context())
			if s.DSN("kept") != dsn || s.local.process.pid == pid {
				t.Error("the address changed, or the process did not")
			}
		})
	}
}

func TestKilledServerIsDownUntilRestart(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	if err := s.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if conn, err := pgx.Connect(t.Context(), s.AdminDSN()); err == nil {
		_ = conn.Close(t.Context())
		t.Error("a killed server takes connections")
	}
}

func TestKeptDirectoryOutlivesTheServer(t *testing.T) {
	t.Parallel()
	o := Options{Dir: filepath.Join(openDir(t), "kept"), Durable: true}
	first := start(t, o)
	if got := ask(t, first, "show fsync"); got != "on" {
		t.Errorf("fsync is %s, want on", got)
	}
	if _, err := first.CreateDatabase(t.Context(), "kept", ""); err != nil {
		t.Fatal(err)
	}
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	second := start(t, o)
	if got := ask(t, second, "select count(*)::text from pg_catalog.pg_database where datname = 'kept'"); got != "1" {
		t.Errorf("%s databases called kept, want 1", got)
	}
}

func TestSettingsWinAndAWrongOneIsReported(t *testing.T) {
	t.Parallel()
	s := start(t, Options{MaxConnections: 33, Settings: map[string]string{"lc_messages": "C", "work_mem": "1MB"}})
	if c, m := ask(t, s, "show max_connections"), ask(t, s, "show work_mem"); c != "33" || m != "1MB" {
		t.Errorf("max_connections %s, work_mem %s", c, m)
	}
	_, err := Start(t.Context(), Options{Settings: map[string]string{"no_such_setting": "1"}})
	var failed *StartError
	if !errors.As(err, &failed) || failed.Program != "postgres" || failed.Output == "" {
		t.Errorf("got %v, want a StartError with what postgres wrote", err)
	}
}

func TestInterruptedStartIsRepeatable(t *testing.T) {
	t.Parallel()
	o := Options{Dir: openDir(t)}
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		s, err := Start(ctx, o)
		if err == nil {
			err = errors.Join(errors.New("started"), s.Stop())
		}
		failed <- err
	}()
	// PG_VERSION is one of the first files that initdb writes.
	eventually(t, "initdb has begun", func() bool { return !gone(filepath.Join(o.Dir, "data.new", "PG_VERSION")) })
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
	ask(t, start(t, o), "show server_version")
}

func TestExternalServerIsNeitherStoppedNorRestarted(t *testing.T) {
	own := start(t, Options{})
	t.Setenv(EnvURL, own.DSN("postgres"))
	s, err := Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !s.External() || !Configured() {
		t.Error("the server counts as ours")
	}
	if err := errors.Join(s.Stop(), s.Stop()); err != nil {
		t.Error(err)
	}
	if err := s.Restart(t.Context()); !errors.Is(err, ErrExternal) {
		t.Errorf("Restart gives %v, want ErrExternal", err)
	}
	if err := s.Kill(t.Context()); !errors.Is(err, ErrExternal) {
		t.Errorf("Kill gives %v, want ErrExternal", err)
	}
	const odd = `odd "name" 'x`
	dsn, err := s.CreateDatabase(t.Context(), odd, "")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close(t.Context())
	if err := errors.Join(s.DropDatabase(t.Context(), odd), s.DropDatabase(t.Context(), odd)); err != nil {
		t.Error(err)
	}
}
