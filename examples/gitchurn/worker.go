package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/examples/gitchurn/internal/projection"
	"github.com/suisha-go/suisha/lease"
	"github.com/suisha-go/suisha/router"
	"github.com/suisha-go/suisha/shardpub"
)

// workerFlag makes this program one worker process.
const workerFlag = "-worker"

// The names of the subscriptions.
const (
	churnSubscription   = "churn"
	revenueSubscription = "revenue"
)

// categories says what each subscription reads.
var categories = map[string]string{churnSubscription: projection.Files, revenueSubscription: projection.Orders}

// workerConfig is what a worker process is told, on its standard input.
type workerConfig struct {
	Number   int    `json:"number"`
	Database string `json:"database"`
	Buckets  int    `json:"buckets"`
	Orders   bool   `json:"orders"`
}

func (c workerConfig) name() string { return fmt.Sprintf("worker %d", c.Number) }

// leases are shorter than the defaults, so that a failover can be watched.
var leases = lease.Config{TTL: 3 * time.Second, RenewInterval: time.Second}

const workerConnections = 8

// work is a worker process: it shares the events with all others until ctx ends.
func work(ctx context.Context, c workerConfig, logger watermill.LoggerAdapter) error {
	pool, err := connect(ctx, c.Database, workerConnections)
	if err != nil {
		return err
	}
	defer pool.Close()
	w, err := router.New(pool, router.Config{
		Shards: c.Buckets,
		Node:   shardpub.NodeConfig{Lease: leases, Name: c.name()},
	}, logger)
	if err != nil {
		return err
	}
	p := projection.Projection{DB: pool, Worker: c.name()}
	w.AddConsumerHandler(churnSubscription, categories[churnSubscription], p.FileChanged)
	if c.Orders {
		w.AddConsumerHandler(revenueSubscription, categories[revenueSubscription], p.LineAdded)
	}
	return w.Run(ctx)
}

func connect(ctx context.Context, dsn string, connections int32) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = connections
	return pgxpool.NewWithConfig(ctx, cfg)
}

// workerMain runs a worker until its standard input ends: then the program that
// started it wants it to stop, or is gone. A Ctrl-C reaches both; the other
// decides.
func workerMain(stdin io.Reader, stderr io.Writer) int {
	signal.Ignore(os.Interrupt)
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	in := bufio.NewReader(stdin)
	var c workerConfig
	line, err := in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &c)
	}
	if err != nil {
		fmt.Fprintln(stderr, "worker: configuration:", err)
		return exitUsage
	}
	go func() {
		io.Copy(io.Discard, in) //nolint:errcheck // any end is the end
		cancel()
		time.AfterFunc(stopLimit, func() { os.Exit(exitFailed) })
	}()
	logger := watermill.NewSlogLogger(slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err := work(ctx, c, logger); err != nil {
		fmt.Fprintln(stderr, "worker:", err)
		return exitFailed
	}
	return 0
}

// stopLimit is how long a worker may take to stop.
const stopLimit = 8 * time.Second
