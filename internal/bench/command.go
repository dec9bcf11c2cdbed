package bench

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/suisha-go/suisha/internal/pgserver"
)

// options are what the command line says.
type options struct {
	only, dsn, json, svg, markdown string
	repeats, events                int
	budget                         time.Duration
	list, full                     bool
}

func parse(name string, args []string, stderr io.Writer) (options, error) {
	var o options
	set := flag.NewFlagSet(name, flag.ContinueOnError)
	set.SetOutput(stderr)
	set.StringVar(&o.only, "only", "", "the questions, separated by commas; empty for all")
	set.BoolVar(&o.list, "list", false, "list the questions and their cases")
	set.IntVar(&o.repeats, "repeats", 3, "how often each case is measured that is not too slow")
	set.IntVar(&o.events, "events", 100_000, "how many events are drained")
	set.DurationVar(&o.budget, "budget", 8*time.Minute, "after this, what remains is measured once; 0 for no limit")
	set.BoolVar(&o.full, "full", false, "measure slow peers to the end, however long that takes")
	set.StringVar(&o.dsn, "dsn", "", "a server whose account may create databases; empty starts one")
	set.StringVar(&o.json, "json", "", "write the report to this file, too")
	set.StringVar(&o.svg, "svg", "", "write a chart per question into this directory")
	set.StringVar(&o.markdown, "markdown", "", "write the tables between the marks of this file")
	if err := set.Parse(args); err != nil {
		return o, err
	}
	if o.repeats < 1 || o.events < 1000 || o.budget < 0 || set.NArg() > 0 {
		return o, errors.New("repeats must be 1 at least, events 1,000, budget not negative, and there are no arguments")
	}
	return o, nil
}

// choose returns the questions that only names, all if it is empty.
func choose(all []Question, only string) ([]Question, error) {
	if only == "" {
		return all, nil
	}
	var out []Question
	for id := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(all, func(q Question) bool { return q.ID == id })
		if i < 0 {
			return nil, fmt.Errorf("there is no question %q", id)
		}
		out = append(out, all[i])
	}
	return out, nil
}

func list(out io.Writer, all []Question) {
	for i := range all {
		q := &all[i]
		fmt.Fprintf(out, "%-10s %s\n", q.ID, q.Title)
		for _, c := range q.Cases {
			fmt.Fprintf(out, "           %-56s %s\n", c.Name, c.Options)
		}
	}
}

// Command is the command bench of a program: it takes the arguments behind the
// command's name and returns the exit code. Questions are made for the number of
// events.
func Command(name string, args []string, questions func(events int) []Question) int {
	o, err := parse(name, args, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err == nil {
		err = o.run(questions)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		return 1
	}
	return 0
}

func (o options) run(questions func(events int) []Question) error {
	chosen, err := choose(questions(o.events), o.only)
	if err != nil {
		return err
	}
	if o.list {
		list(os.Stdout, chosen)
		return nil
	}
	if o.dsn != "" {
		if err := os.Setenv(pgserver.EnvURL, o.dsn); err != nil {
			return err
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	server, err := StartServer(ctx)
	if err != nil {
		return err
	}
	r := Runner{
		Env:     &Env{Server: server, Events: o.events, Full: o.full},
		Repeats: o.repeats,
		Budget:  o.budget,
		Say:     func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) },
	}
	report, err := r.Run(ctx, chosen)
	if err := errors.Join(err, server.Stop()); err != nil {
		return err
	}
	return o.write(report)
}

func (o options) write(r *Report) error {
	errs := []error{r.Print(os.Stdout)}
	if o.json != "" {
		errs = append(errs, r.WriteJSON(o.json))
	}
	if o.svg != "" {
		errs = append(errs, r.WriteCharts(o.svg))
	}
	if o.markdown != "" {
		errs = append(errs, r.Insert(o.markdown, "bench"))
	}
	return errors.Join(errs...)
}
