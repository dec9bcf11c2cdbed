// Gitchurn reads the history of a git repository into the event store and lets
// three worker processes count how much each file changed. It kills one of them
// in the middle, starts another, and at the end holds every row against git.
//
//	go run ./examples/gitchurn [-repo DIR] [-limit COMMITS] [-workers 3] [-buckets 12]
//
// REPO and LIMIT in the environment do the same. Without them it reads all of
// the clone that it runs in. It needs git and PostgreSQL, see internal/pgserver,
// and leaves nothing behind.
//
// Start reading at demo.go. worker.go is what a program of your own would be.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/suisha-go/suisha/examples/gitchurn/internal/screen"
)

// Exit codes besides 0.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == workerFlag {
		os.Exit(workerMain(os.Stdin, os.Stderr))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the clean-up, too
	o, err := parse(os.Args[1:], os.Getenv, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		os.Exit(exitUsage)
	}
	os.Exit(run(ctx, o, console(os.Stdout), nil))
}

// run is the program: it returns the exit code. tamper, if any, is called
// before the verdict, for tests that break something.
func run(ctx context.Context, o options, s *screen.Screen, tamper tamperer) int {
	defer s.Close()
	d := &demo{options: o, screen: s, tamper: tamper}
	kept, err := d.run(ctx)
	s.Keep()
	switch {
	case ctx.Err() != nil && d.unclean == nil:
		s.Say("", "  Interrupted. Workers, database and files are gone.", "")
		return exitInterrupted
	case ctx.Err() != nil:
		s.Say("", "  Interrupted, and not everything is gone: "+d.unclean.Error(), "")
		return exitInterrupted
	case err != nil:
		s.Say("", "  It did not work: "+err.Error(), "")
		return exitFailed
	case !kept:
		return exitFailed
	}
	return 0
}

// options is what the user chose.
type options struct {
	repo    string // directory in or of the repository
	limit   int    // newest commits to read; 0 means all
	workers int
	buckets int // per subscription
	fill    int // events to reach with orders where the history is small
}

// parse reads the flags; what they lack comes from the environment.
func parse(args []string, env func(string) string, stderr io.Writer) (options, error) {
	o := options{repo: env("REPO"), fill: fillTo}
	if o.repo == "" {
		o.repo = "."
	}
	flags := flag.NewFlagSet("gitchurn", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.repo, "repo", o.repo, "`directory` of the repository; REPO in the environment")
	flags.IntVar(&o.limit, "limit", 0, "number of newest `commits` to read, 0 for all; LIMIT in the environment")
	flags.IntVar(&o.workers, "workers", 3, "number of worker processes, 2 to 8")
	flags.IntVar(&o.buckets, "buckets", 12, "number of buckets per subscription, 1 to 64")
	if limit := env("LIMIT"); limit != "" {
		n, err := strconv.Atoi(limit)
		if err != nil {
			fmt.Fprintf(stderr, "LIMIT=%s: a number of commits is needed\n", limit)
			return o, err
		}
		o.limit = n
	}
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.limit < 0 {
		fmt.Fprintf(stderr, "LIMIT=%d: a number of commits is needed, 0 for all\n", o.limit)
		return o, errUsage
	}
	if flags.NArg() > 0 || o.workers < 2 || o.workers > 8 || o.buckets < 1 || o.buckets > 64 {
		flags.Usage()
		return o, errUsage
	}
	return o, nil
}

var errUsage = errors.New("gitchurn: option out of range")

// console is the screen for a file: in place on a terminal, in lines elsewhere.
// NO_COLOR has its usual meaning.
func console(f *os.File) *screen.Screen {
	if _, _, ok := screen.Size(f); !ok || os.Getenv("TERM") == "dumb" {
		return screen.Log(f)
	}
	size := func() (int, int, bool) { return screen.Size(f) }
	return screen.Terminal(f, size, os.Getenv("NO_COLOR") == "")
}
