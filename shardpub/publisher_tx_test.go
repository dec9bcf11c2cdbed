package shardpub_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/internal/pgtest"
	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/shardpub"
)

func TestPublishHonoursTheDeadline(t *testing.T) {
	t.Parallel()
	pool := storePool(t)
	pub := newPublisher(t, pool, shardpub.PublisherConfig{})
	release := holdTheLog(t, pool)
	if err := pool.Ping(t.Context()); err != nil { // the connection is not part of the measurement
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	err := pub.Publish("orders", message.NewMessageWithContext(ctx, "m1", nil))
	if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took > 2*time.Second {
		t.Errorf("%v after %v, want DeadlineExceeded after 50 ms", err, took)
	}
	eventually(t, pool, "the append is cancelled on the server", noWriterWaits)
	release()
	if head := headOf(t, pool); head != 0 {
		t.Errorf("head %d: something was appended", head)
	}
}

// However the connection is configured to cancel.
func TestPublishIsCancelledOnTheServer(t *testing.T) {
	t.Parallel()
	base := storePool(t)
	cfg := base.Config()
	cfg.ConnConfig.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: 10 * time.Second}
	}
	patient, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer patient.Close()
	for name, pool := range map[string]*pgxpool.Pool{"deadline": base, "cancel request": patient} {
		pub := newPublisher(t, pool, shardpub.PublisherConfig{OnPublished: func(context.Context, string, []kiroku.Appended) {
			t.Error("OnPublished after a failure")
		}})
		release := holdTheLog(t, base)
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() { result <- pub.Publish("orders", message.NewMessageWithContext(ctx, "m1", nil)) }()
		eventually(t, base, "the append waits", aWriterWaits)
		cancel()
		if err := <-result; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want Canceled", name, err)
		}
		eventually(t, base, "the append is cancelled on the server", noWriterWaits)
		release()
		if head := headOf(t, base); head != 0 {
			t.Errorf("%s: head %d: something was appended", name, head)
		}
	}
}

// The server gives up by itself, also when the client cannot tell it to.
func TestDeadlineIsKnownToTheServer(t *testing.T) {
	t.Parallel()
	base := storePool(t)
	cfg := base.Config()
	cfg.ConnConfig.BuildContextWatcherHandler = func(*pgconn.PgConn) ctxwatch.Handler { return deaf{} }
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	pub := newPublisher(t, pool, shardpub.PublisherConfig{})
	if err := pub.Publish("orders", newMessage("m1", "x", nil)); err != nil { // what connecting needs is there
		t.Fatal(err)
	}
	holdTheLog(t, base)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := pub.Publish("orders", message.NewMessageWithContext(ctx, "m2", nil)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want DeadlineExceeded", err)
	}
	if head := headOf(t, base); head != 1 {
		t.Errorf("head %d: something was appended", head)
	}
}

// deaf is a connection that does not notice when its context ends.
type deaf struct{}

func (deaf) HandleCancel(context.Context) {}
func (deaf) HandleUnwatchAfterCancel()    {}

// Neither the bounds of one call nor those of the pool change for the next.
func TestBoundsEndWithTheCall(t *testing.T) {
	t.Parallel()
	base := storePool(t)
	for setting, want := range map[string]string{"0": "0", "7s": "7s", "100ms": "100ms"} {
		cfg := base.Config()
		cfg.MaxConns = 1
		cfg.ConnConfig.RuntimeParams["statement_timeout"] = setting
		cfg.ConnConfig.RuntimeParams["lock_timeout"] = setting
		pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		pub := newPublisher(t, pool, shardpub.PublisherConfig{LockTimeout: 1000 * time.Hour})
		ctx, cancel := context.WithTimeout(t.Context(), 1000*time.Hour) // more than the setting takes
		t.Cleanup(cancel)
		release := holdTheLog(t, base)
		result := make(chan error, 1)
		go func() { result <- pub.Publish("orders", message.NewMessageWithContext(ctx, "m1", nil)) }()
		if setting == "100ms" { // the pool's own bound is not raised
			if err := <-result; err == nil {
				t.Error("statement_timeout of the pool was raised")
			}
			release()
		} else {
			eventually(t, base, "the append waits", aWriterWaits)
			release()
			if err := <-result; err != nil {
				t.Error(err)
			}
		}
		for _, name := range []string{"statement_timeout", "lock_timeout"} {
			var got string
			if err := pool.QueryRow(t.Context(), "show "+name).Scan(&got); err != nil || got != want {
				t.Errorf("%s is %q afterwards, %v, want %q", name, got, err, want)
			}
		}
	}
}

func TestPublishWithACancelledContextSendsNothing(t *testing.T) {
	t.Parallel()
	pool := storePool(t)
	pub := newPublisher(t, pool, shardpub.PublisherConfig{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := pub.Publish("orders", message.NewMessageWithContext(ctx, "m1", nil)); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want Canceled", err)
	}
	if head := headOf(t, pool); head != 0 {
		t.Errorf("head %d: something was appended", head)
	}
}

func TestLockTimeoutBoundsTheWait(t *testing.T) {
	t.Parallel()
	pool := storePool(t)
	pub := newPublisher(t, pool, shardpub.PublisherConfig{LockTimeout: 50 * time.Millisecond})
	release := holdTheLog(t, pool)
	var typed *kiroku.TransientError
	if err := pub.Publish("orders", newMessage("m1", "x", nil)); !errors.As(err, &typed) {
		t.Errorf("%v, want a *TransientError", err)
	}
	release()
	if err := pub.Publish("orders", newMessage("m2", "x", nil)); err != nil {
		t.Error(err)
	}
	if got := uuidsOf(messagesOf(t, pool, "orders")); got != "m2" {
		t.Errorf("orders holds %s", got)
	}
}

func TestLockTimeoutInATransactionLeavesItUsable(t *testing.T) {
	t.Parallel()
	pool := storePool(t)
	release := holdTheLog(t, pool)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), `set local lock_timeout = '7s'`); err != nil {
		t.Fatal(err)
	}
	pub := newPublisher(t, tx, shardpub.PublisherConfig{LockTimeout: 50 * time.Millisecond})
	var typed *kiroku.TransientError
	if err := pub.Publish("orders", newMessage("m1", "x", nil)); !errors.As(err, &typed) {
		t.Errorf("%v, want a *TransientError", err)
	}
	release()
	for _, when := range []string{"after a timeout", "after a success"} {
		var setting string
		if err := tx.QueryRow(t.Context(), `show lock_timeout`).Scan(&setting); err != nil || setting != "7s" {
			t.Errorf("%s: lock_timeout %q, %v", when, setting, err)
		}
		if err := pub.Publish("orders", newMessage("m2", "x", nil)); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := uuidsOf(messagesOf(t, pool, "orders")); got != "m2 m2" {
		t.Errorf("orders holds %s", got)
	}
}

func TestPublishIsPartOfTheCallersTransaction(t *testing.T) {
	t.Parallel()
	pool := storePool(t)
	for id, end := range map[string]func(pgx.Tx) error{
		"rolled": func(tx pgx.Tx) error { return tx.Rollback(t.Context()) },
		"kept":   func(tx pgx.Tx) error { return tx.Commit(t.Context()) },
	} {
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		err = newPublisher(t, tx, shardpub.PublisherConfig{}).Publish("orders", newMessage(id, "x", nil))
		if err := errors.Join(err, end(tx)); err != nil {
			t.Fatal(err)
		}
	}
	if got := uuidsOf(messagesOf(t, pool, "orders")); got != "kept" {
		t.Errorf("orders holds %s", got)
	}
}

func TestPublishOnAConnection(t *testing.T) {
	t.Parallel()
	pool := storePool(t)
	conn, err := pgx.Connect(t.Context(), pgtest.DSN(pool))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if err := newPublisher(t, conn, shardpub.PublisherConfig{LockTimeout: time.Second}).Publish("orders", newMessage("m1", "x", nil)); err != nil {
		t.Fatal(err)
	}
	if got := uuidsOf(messagesOf(t, pool, "orders")); got != "m1" {
		t.Errorf("orders holds %s", got)
	}
}

// Case 64: one call cannot, but two transactions with two calls each can.
func TestDeadlockOfTransactionsIsTypedAndRetryable(t *testing.T) {
	t.Parallel()
	pool := storePool(t)
	setUp := newPublisher(t, pool, shardpub.PublisherConfig{})
	if err := setUp.Publish("orders", keyed("m0", "x", "a"), keyed("m0", "x", "b")); err != nil {
		t.Fatal(err)
	}
	publish := func(tx pgx.Tx, key string) error {
		return newPublisher(t, tx, shardpub.PublisherConfig{}).Publish("orders", keyed("m1", "x", key))
	}
	first, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	second, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := publish(first, "a"); err != nil {
		t.Fatal(err)
	}
	result := make(chan error, 1)
	go func() { // takes b, then waits for the log that the first transaction has
		err := publish(second, "b")
		result <- errors.Join(err, second.Rollback(t.Context()))
	}()
	eventually(t, pool, "the second transaction waits", aWriterWaits)
	err = publish(first, "b")
	err = errors.Join(err, first.Rollback(t.Context()), <-result)
	var typed *kiroku.TransientError
	if !errors.As(err, &typed) {
		t.Errorf("%v, want a *TransientError from one of the two", err)
	}
	if err := setUp.Publish("orders", keyed("m2", "x", "b"), keyed("m2", "x", "a")); err != nil {
		t.Errorf("again: %v", err)
	}
}
