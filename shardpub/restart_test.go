package shardpub_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/internal/pgserver"
	"github.com/suisha-go/suisha/internal/pgtest"
	"github.com/suisha-go/suisha/shardpub"
)

// migrated makes a database on a server of the test's own.
func migrated(t *testing.T, server *pgserver.Server) *pgxpool.Pool {
	t.Helper()
	ctx := context.Background()
	dsn, err := server.CreateDatabase(ctx, "reconnect", "")
	if err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if err := shardpub.Migrate(ctx, pool); err != nil {
		t.Fatal(err)
	}
	return pool
}

// The server restarts twice in the middle of the traffic: the subscriber comes
// back by itself, and every message whose Publish succeeded is delivered, in
// order per key.
func TestServerRestartsLoseNothing(t *testing.T) {
	t.Parallel()
	const publishers, each = 4, 150
	server := pgtest.Server(t, pgserver.Options{})
	pub, sub := suite{shards: 4, key: keyByUUID}.pubSub(t, migrated(t, server), "group")
	t.Cleanup(func() { _ = sub.Close() })
	messages, err := sub.Subscribe(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	var publishing sync.WaitGroup
	for p := range publishers {
		publishing.Go(func() {
			for i := range each {
				for pub.Publish("orders", message.NewMessage(fmt.Sprint("customer", p), fmt.Appendf(nil, "%d", i))) != nil {
				}
			}
		})
	}
	last := map[string]int{}
	for handled := 0; handled < publishers*each; {
		m := receive(t, messages)
		var n int
		if _, err := fmt.Sscan(string(m.Payload), &n); err != nil {
			t.Fatal(err)
		}
		switch next, seen := last[m.UUID]; {
		case n == next:
			last[m.UUID]++
			handled++
		case n > next || !seen:
			t.Fatalf("%s: %d came after %d", m.UUID, n, next-1)
		}
		m.Ack()
		if handled == 100 || handled == 300 {
			if err := server.Restart(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
	}
	publishing.Wait()
}
