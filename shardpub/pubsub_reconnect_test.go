//go:build !race

package shardpub_test

import (
	"context"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"

	"github.com/suisha-go/suisha/internal/pgserver"
	"github.com/suisha-go/suisha/internal/pgtest"
)

// TestPubSubReconnect restarts a server of its own in the middle of the suite's
// traffic, at the suite's command: a signal to this process. The suite reads what
// its publishers still write, so it runs without the race detector; with it runs
// TestServerRestartsLoseNothing.
func TestPubSubReconnect(t *testing.T) { //nolint:paralleltest // it takes signals of the process
	server := pgtest.Server(t, pgserver.Options{})
	pool := migrated(t, server)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	t.Cleanup(func() { signal.Stop(signals) })
	go func() {
		for range signals {
			if err := server.Restart(context.Background()); err != nil {
				t.Error(err)
			}
		}
	}()
	s := suite{shards: 8, key: keyByUUID, short: true, restart: []string{"kill", "-USR1", strconv.Itoa(os.Getpid())}}
	tests.TestReconnect(t, tests.TestContext{TestID: tests.NewTestID(), Features: s.features()},
		func(t *testing.T) (message.Publisher, message.Subscriber) { return s.pubSub(t, pool, "group") })
}
