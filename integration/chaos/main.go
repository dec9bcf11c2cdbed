//go:build unix

// Chaos breaks a fleet of workers at random and proves that nothing was lost.
//
//	go run ./integration/chaos [-duration 60s] [-seed N] [-workers 3] [-buckets 16] [-json FILE]
//	go run ./integration/chaos -only planned             # no repeats may come of these
//	go run ./integration/chaos -concurrency 4 -batch 8   # many streams at once, some messages of one together
//	go run ./integration/chaos -only sigkill,cut -gap 8s # faults or classes, and how often
//	go run ./integration/chaos -figures [-only moves,failover,lost,…]
//
// It starts a PostgreSQL of its own and worker processes, each a router.Worker
// that reaches the server through a TCP proxy of its own. A publisher appends
// events all the time. Meanwhile processes are killed, frozen, stopped and rolled,
// lines are cut, delayed and black-holed, notifications are dropped, backends are
// ended, the server is restarted and crashed, and rows are locked, with a queue
// behind the lock or without (see kinds). Some workers have wrong clocks, some
// work without a session. -log FILE keeps what they say.
//
// Each call of a handler appends a row; triggers write down every change of an
// owner, a checkpoint and a dead letter with who made it. When the faults are over
// and everything has drained, the checker (check.go) asks whether every event was
// handled, streams in order, no checkpoint ahead of the handlers, no write by a
// worker that did not own the bucket, no bucket taken from a live owner. One
// violation makes the exit code 1, and is printed; a run that did not drain in
// time is one. The seed repeats the choice of the faults, not the races.
//
// With -figures it breaks nothing at random but measures, in at most 40 minutes,
// how long planned moves, failovers, joins, cold starts and restarts take, what
// workers write that were frozen for longer than their leases, and what moves when
// nothing happens. The checker also says what the planned moves did to the events.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// options are what the command line says.
type options struct {
	duration    time.Duration
	seed        uint64
	workers     int
	buckets     int
	streams     int
	rate        int // events per second
	concurrency int // streams of a bucket at once
	batch       int // messages of a stream at once
	work        time.Duration
	ttl         time.Duration
	renew       time.Duration
	gap         time.Duration
	atOnce      int
	only        string
	figures     bool
	json        string
	log         string
}

func main() {
	if spec := os.Getenv(workerEnv); spec != "" {
		os.Exit(runWorker(spec))
	}
	os.Exit(run(os.Args[1:]))
}

func parse(args []string) (options, error) {
	var o options
	set := flag.NewFlagSet("chaos", flag.ContinueOnError)
	set.DurationVar(&o.duration, "duration", time.Minute, "how long faults happen")
	set.Uint64Var(&o.seed, "seed", 0, "what the faults are chosen by; 0 takes one at random")
	set.IntVar(&o.workers, "workers", 3, "how many worker processes there usually are")
	set.IntVar(&o.buckets, "buckets", 16, "how many buckets the subscription has")
	set.IntVar(&o.concurrency, "concurrency", 1, "how many streams of a bucket are handled at once")
	set.IntVar(&o.batch, "batch", 1, "how many messages of a stream every second worker handles at once, at most")
	set.IntVar(&o.streams, "streams", 200, "how many streams are appended to")
	set.IntVar(&o.rate, "rate", 400, "events per second")
	set.DurationVar(&o.work, "work", 20*time.Millisecond, "how long a handler takes on average")
	set.DurationVar(&o.ttl, "ttl", 3*time.Second, "how long leases last")
	set.DurationVar(&o.renew, "renew", time.Second, "how often they are renewed")
	set.DurationVar(&o.gap, "gap", 1400*time.Millisecond, "how long between two faults on average")
	set.IntVar(&o.atOnce, "at-once", 3, "how many faults go on at the same time, at most")
	set.StringVar(&o.only, "only", "", "the kinds of fault or of figure, separated by commas; empty for all")
	set.BoolVar(&o.figures, "figures", false, "measure instead")
	set.StringVar(&o.json, "json", "", "write the result to this file, too")
	set.StringVar(&o.log, "log", "", "write what the workers say to this file")
	if err := set.Parse(args); err != nil {
		return o, err
	}
	if min(o.workers, o.buckets, o.concurrency, o.batch, o.streams, o.rate, o.atOnce) < 1 || min(o.duration, o.work, o.ttl, o.renew, o.gap) <= 0 {
		return o, errors.New("numbers and durations must be more than 0")
	}
	if o.seed == 0 {
		o.seed = rand.Uint64N(1 << 32)
	}
	return o, nil
}

func run(args []string) int {
	o, err := parse(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := io.Discard
	if o.log != "" {
		file, err := os.Create(o.log)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
		defer func() { _ = file.Close() }()
		log = file
	}
	if o.figures {
		err = measureAll(ctx, o, log)
	} else {
		err = breakAll(ctx, o, log)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		return 1
	}
	return 0
}
