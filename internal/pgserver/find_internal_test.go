package pgserver

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// imagined is a finder on a machine with these directories, each with the
// version that its programs print.
func imagined(versions map[string]string) finder {
	return finder{
		getenv:   func(string) string { return "" },
		lookPath: func(string) (string, error) { return "", exec.ErrNotFound },
		resolve:  func(p string) (string, error) { return p, nil },
		glob: func(pattern string) ([]string, error) {
			var out []string
			for dir := range versions {
				if ok, _ := filepath.Match(pattern, dir); ok {
					out = append(out, dir)
				}
			}
			return out, nil
		},
		output: func(_ context.Context, program string, _ ...string) (string, error) {
			v, ok := versions[filepath.Dir(program)]
			if !ok {
				return "", exec.ErrNotFound
			}
			return filepath.Base(program) + " (PostgreSQL) " + v, nil
		},
		reachable: func(string) bool { return true },
	}
}

func TestNewestInstalledVersionIsTaken(t *testing.T) {
	t.Parallel()
	debian := map[string]string{
		"/usr/lib/postgresql/9.6/bin": "9.6.24",
		"/usr/lib/postgresql/15/bin":  "15.20 (Debian 15.20-0+deb12u1)",
		"/usr/lib/postgresql/17/bin":  "17.2",
		"/usr/pgsql-16/bin":           "16.4",
	}
	tests := []struct {
		name  string
		have  map[string]string
		path  string
		major int
		want  string
	}{
		{"several packages", debian, "", 0, "/usr/lib/postgresql/17/bin"},
		{"the version that wrote the data", debian, "", 16, "/usr/pgsql-16/bin"},
		{"PATH wins among equals", map[string]string{"/opt/pg/bin": "17.4", "/usr/lib/postgresql/17/bin": "17.2"}, "/opt/pg/bin/postgres", 0, "/opt/pg/bin"},
		{"a beta", map[string]string{"/usr/pgsql-19/bin": "19beta1"}, "", 0, "/usr/pgsql-19/bin"},
		{"Homebrew on ARM", map[string]string{"/opt/homebrew/opt/postgresql@17/bin": "17.2 (Homebrew)"}, "", 0, "/opt/homebrew/opt/postgresql@17/bin"},
		{"Homebrew on Intel", map[string]string{"/usr/local/opt/postgresql@16/bin": "16.2"}, "", 0, "/usr/local/opt/postgresql@16/bin"},
		{"Postgres.app", map[string]string{"/Applications/Postgres.app/Contents/Versions/16/bin": "16.2"}, "", 0, "/Applications/Postgres.app/Contents/Versions/16/bin"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := imagined(tt.have)
			if tt.path != "" {
				f.lookPath = func(p string) (string, error) {
					if p == "postgres" {
						return tt.path, nil
					}
					return "", exec.ErrNotFound
				}
			}
			in, ok, _, err := f.installed(t.Context(), tt.major)
			if err != nil || !ok || in.bin != tt.want {
				t.Errorf("got %v, %v, %v, want %s", in, ok, err, tt.want)
			}
		})
	}
}

func TestPgConfigPointsAtTheBinaries(t *testing.T) {
	t.Parallel()
	f := imagined(map[string]string{"/srv/pg/bin": "16.1"})
	f.lookPath = func(p string) (string, error) {
		if p == "pg_config" {
			return "/usr/bin/pg_config", nil
		}
		return "", exec.ErrNotFound
	}
	version := f.output
	f.output = func(ctx context.Context, program string, args ...string) (string, error) {
		if program == "/usr/bin/pg_config" {
			return "/srv/pg/bin", nil
		}
		return version(ctx, program, args...)
	}
	in, ok, _, err := f.installed(t.Context(), 0)
	if err != nil || !ok || in.bin != "/srv/pg/bin" {
		t.Errorf("got %v, %v, %v", in, ok, err)
	}
}

func TestWrongExplicitDirectoryIsAnErrorNotAHint(t *testing.T) {
	t.Parallel()
	f := imagined(map[string]string{"/usr/lib/postgresql/17/bin": "17.2", "/old": "14.1"})
	for _, dir := range []string{"/nowhere", "/old"} {
		f.getenv = func(string) string { return dir }
		if _, _, _, err := f.installed(t.Context(), 0); err == nil || !strings.Contains(err.Error(), EnvBin) {
			t.Errorf("%s=%s gives %v, want an error that names the variable", EnvBin, dir, err)
		}
	}
	f.getenv = func(string) string { return "/usr/lib/postgresql/17/bin" }
	if in, ok, _, err := f.installed(t.Context(), 0); err != nil || !ok || in.major != 17 {
		t.Errorf("got %v, %v, %v", in, ok, err)
	}
}

func TestNothingFoundListsTheWays(t *testing.T) {
	t.Parallel()
	f := imagined(map[string]string{"/usr/lib/postgresql/14/bin": "14.9", "/usr/lib/postgresql/16/bin": "16.9"})
	f.reachable = func(dir string) bool { return !strings.Contains(dir, "16") }
	_, err := f.find(t.Context(), 0, t.TempDir())
	var missing *NotFoundError
	if !errors.As(err, &missing) {
		t.Fatalf("got %v, want a NotFoundError", err)
	}
	missing.OS = "linux"
	for _, way := range []string{
		"apt-get install postgresql", "dnf install", "docker run", "DATABASE_URL=postgres://", "npm", "@embedded-postgres/linux-", EnvBin,
		"PostgreSQL 14 is older than 15", "cannot reach it",
	} {
		if !strings.Contains(err.Error(), way) {
			t.Errorf("the error does not mention %q:\n%v", way, err)
		}
	}
	missing.OS = "darwin"
	if !strings.Contains(err.Error(), "brew install") {
		t.Errorf("the error for darwin does not mention Homebrew:\n%v", err)
	}
}

func TestConnectionStringForAnotherDatabase(t *testing.T) {
	t.Parallel()
	tests := []struct{ dsn, database, want string }{
		{"postgres://u:p%40w@h:5432/postgres?sslmode=disable", "x", "postgres://u:p%40w@h:5432/x?sslmode=disable"},
		{"postgresql://u@h", "a b", "postgresql://u@h/a%20b"},
		{"postgres:///?host=/run&dbname=old", "new", "postgres:///new?host=%2Frun"},
		{"host=/run dbname=old", "it's", `host=/run dbname=old dbname='it\'s'`},
	}
	for _, tt := range tests {
		got, err := withDatabase(tt.dsn, tt.database)
		if err != nil || got != tt.want {
			t.Errorf("withDatabase(%q, %q) = %q, %v, want %q", tt.dsn, tt.database, got, err, tt.want)
		}
	}
}
