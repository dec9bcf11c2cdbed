package kiroku_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/suisha-go/suisha/internal/pgtest"
	"github.com/suisha-go/suisha/kiroku"
)

func TestParseNotificationReadsFromTheRight(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]kiroku.Notification{
		"orders-2,5,1":            {Stream: "orders-2", StreamID: 5, Version: 1},
		"orders-2,with,comma,5,1": {Stream: "orders-2,with,comma", StreamID: 5, Version: 1},
		",12,1":                   {Stream: "", StreamID: 12, Version: 1},
		",,12,1":                  {Stream: ",", StreamID: 12, Version: 1},
		"1,2,3,4":                 {Stream: "1,2", StreamID: 3, Version: 4},
	} {
		if got, err := kiroku.ParseNotification(payload); err != nil || got != want {
			t.Errorf("%q: %+v, %v", payload, got, err)
		}
	}
	for _, payload := range []string{"", "a", "a,1", "a,b,1", "a,1,b", "a,1,", "a,,1", "a,1,99999999999999999999", "a, 1,2", strings.Repeat("x", 9000)} {
		got, err := kiroku.ParseNotification(payload)
		if refused := wantError[*kiroku.NotificationError](t, err); refused.Payload != payload || got != (kiroku.Notification{}) {
			t.Errorf("%q: %+v, %v", payload, got, err)
		}
		if len(err.Error()) > 200 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	}
}

func FuzzParseNotification(f *testing.F) {
	f.Add("orders-2,with,comma,5,1")
	f.Add(",,,")
	f.Fuzz(func(t *testing.T, payload string) {
		if got, err := kiroku.ParseNotification(payload); err == nil && !strings.HasPrefix(payload, got.Stream+",") {
			t.Errorf("%q: %+v", payload, got)
		}
		made := fmt.Sprintf("%s,%d,%d", payload, 7, 9)
		if got, err := kiroku.ParseNotification(made); err != nil || got != (kiroku.Notification{Stream: payload, StreamID: 7, Version: 9}) {
			t.Errorf("%q: %+v, %v", made, got, err)
		}
	})
}

// kiroku.md 13: 52, 53.
func TestListenerTellsOfAppendsAndOfEveryNewConnection(t *testing.T) {
	t.Parallel()
	pool := store(t)
	var (
		appended  = make(chan kiroku.Notification, 10)
		listening = make(chan struct{}, 10)
		failed    = make(chan error, 10)
		done      = make(chan error, 1)
	)
	listener := kiroku.NewListener(func(ctx context.Context) (*pgx.Conn, error) {
		cfg, err := pgx.ParseConfig(pgtest.DSN(pool))
		if err != nil {
			return nil, err
		}
		cfg.RuntimeParams["application_name"] = "listener"
		return pgx.ConnectConfig(ctx, cfg)
	}, kiroku.ListenerConfig{
		OnAppend:    func(n kiroku.Notification) { appended <- n },
		OnListening: func() { listening <- struct{}{} },
		OnError:     func(err error) { failed <- err },
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { done <- listener.Run(ctx) }()

	<-listening
	a := mustAppend(t, pool, "a-1", 2)
	if n := <-appended; n != (kiroku.Notification{Stream: "a-1", StreamID: a.StreamID, Version: 2}) {
		t.Errorf("%+v", n)
	}
	exec(t, pool, `select pg_notify('kiroku.events', 'nonsense')`)
	wantError[*kiroku.NotificationError](t, <-failed)

	// The backend is killed: a new connection, and the user is told to look.
	exec(t, pool, `select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'listener' and datname = current_database()`)
	<-listening
	if err := <-failed; err == nil {
		t.Error("the loss was not told")
	}
	mustAppend(t, pool, "a-1", 1)
	if n := <-appended; n.Version != 3 {
		t.Errorf("%+v", n)
	}

	cancel()
	if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	eventually(t, func() bool {
		return queryOne[int](t, pool, `select count(*) from pg_stat_activity where application_name = 'listener' and datname = current_database()`) == 0
	})
}
