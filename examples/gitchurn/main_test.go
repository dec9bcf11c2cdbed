package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/suisha-go/suisha/examples/gitchurn/internal/screen"
)

// demoFlag makes the test binary the program on a small input: its value is
// the repository.
const demoFlag = "-demo="

// TestMain lets the test binary be a worker process, or the whole program,
// when it is started as one.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == workerFlag {
		os.Exit(workerMain(os.Stdin, os.Stderr))
	}
	if len(os.Args) == 2 && strings.HasPrefix(os.Args[1], demoFlag) {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		os.Exit(run(ctx, small(strings.TrimPrefix(os.Args[1], demoFlag)), screen.Log(os.Stdout), nil))
	}
	os.Exit(m.Run())
}

// small is a run of a few seconds.
func small(repo string) options {
	return options{repo: repo, workers: 3, buckets: 12, fill: 3_000}
}

func TestOptionsComeFromFlagsThenEnvironmentThenDefaults(t *testing.T) {
	t.Parallel()
	none := func(string) string { return "" }
	some := func(name string) string { return map[string]string{"REPO": "/env", "LIMIT": "7"}[name] }
	for _, c := range []struct {
		args []string
		env  func(string) string
		want options
	}{
		{nil, none, options{".", 0, 3, 12, fillTo}},
		{nil, some, options{"/env", 7, 3, 12, fillTo}},
		{[]string{"-repo", "/flag", "-limit", "9", "-workers", "2", "-buckets", "64"}, some, options{"/flag", 9, 2, 64, fillTo}},
		{[]string{"-limit=0"}, some, options{"/env", 0, 3, 12, fillTo}},
	} {
		if got, err := parse(c.args, c.env, io.Discard); err != nil || got != c.want {
			t.Errorf("%v: got %+v, %v; want %+v", c.args, got, err, c.want)
		}
	}
}

func TestOptionsOutOfRangeAreRefused(t *testing.T) {
	t.Parallel()
	none := func(string) string { return "" }
	for _, args := range [][]string{
		{"-limit", "-1"}, {"-limit", "x"}, {"-workers", "1"}, {"-workers", "9"}, {"-buckets", "0"}, {"-buckets", "65"}, {"extra"}, {"-unknown"},
	} {
		if got, err := parse(args, none, io.Discard); err == nil {
			t.Errorf("%v: got %+v", args, got)
		}
	}
	if got, err := parse(nil, func(name string) string { return map[string]string{"LIMIT": "many"}[name] }, io.Discard); err == nil {
		t.Errorf("LIMIT=many: got %+v", got)
	}
}
