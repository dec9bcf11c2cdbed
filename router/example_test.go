package router_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/middleware"
	"github.com/suisha-go/suisha/router"
	"github.com/suisha-go/suisha/shardpub"
)

var errUnknownCurrency = errors.New("unknown currency")

func bill(*message.Message) error { return nil }

// A program of which any number may run at once.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		slog.Error("connect", "err", err)
		return
	}
	defer pool.Close()
	if err := shardpub.Migrate(ctx, pool); err != nil {
		slog.Error("migrate", "err", err)
		return
	}
	w, err := router.New(pool, router.Config{Shards: 16}, watermill.NewSlogLogger(slog.Default()))
	if err != nil {
		slog.Error("configure", "err", err)
		return
	}
	w.AddConsumerHandler("billing", "orders", bill).AddMiddleware(
		middleware.Retry(shardpub.RetryPolicy{MaxDeliveries: 10, Delay: time.Second, Multiplier: 2, MaxDelay: time.Minute}),
		middleware.DeadLetter(func(err error) (string, bool) {
			return "the currency is not one of ours", errors.Is(err, errUnknownCurrency)
		}),
	)
	if err := w.Run(ctx); err != nil {
		slog.Error("run", "err", err)
	}
}
