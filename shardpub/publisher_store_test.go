package shardpub_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/internal/pgtest"
	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/shardpub"
)

func storePool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	return pgtest.New(t, kiroku.Migrate)
}

func newPublisher(t *testing.T, db shardpub.Executor, cfg shardpub.PublisherConfig) *shardpub.Publisher {
	t.Helper()
	pub, err := shardpub.NewPublisher(db, cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pub.Close(); err != nil {
			t.Error(err)
		}
	})
	return pub
}

func keyed(id, payload, key string) *message.Message {
	return newMessage(id, payload, map[string]string{shardpub.MetadataKey: key})
}

func expecting(id, key, version string) *message.Message {
	msg := keyed(id, "x", key)
	msg.Metadata.Set(shardpub.MetadataExpectedVersion, version)
	return msg
}

// messagesOf reads a category back as messages, in the order of the log.
func messagesOf(t *testing.T, db kiroku.DB, category string) []*message.Message {
	t.Helper()
	events, err := kiroku.ReadCategory(t.Context(), db, category, 0, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	var out []*message.Message
	for _, e := range events {
		out = append(out, unmarshal(t, e))
	}
	return out
}

func uuidsOf(msgs []*message.Message) string {
	var ids []string
	for _, msg := range msgs {
		ids = append(ids, msg.UUID)
	}
	return strings.Join(ids, " ")
}

func headOf(t *testing.T, db kiroku.DB) kiroku.Position {
	t.Helper()
	head, err := kiroku.Head(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	return head
}

// eventually waits for a condition of the server.
func eventually(t *testing.T, pool *pgxpool.Pool, what, query string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		var holds bool
		if err := pool.QueryRow(ctx, query).Scan(&holds); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if holds {
			return
		}
		<-tick.C
	}
}

const (
	aWriterWaits   = `select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')`
	noWriterWaits  = `select not exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')`
	lockTheWholeOf = `select from kiroku.streams where stream_id = 0 for update`
)

// holdTheLog locks what every append needs, until release is called.
func holdTheLog(t *testing.T, pool *pgxpool.Pool) (release func()) {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), lockTheWholeOf); err != nil {
		t.Fatal(err)
	}
	release = sync.OnceFunc(func() {
		if err := tx.Rollback(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(release)
	return release
}

// noSQL is a database that must not be asked.
type noSQL struct{ t *testing.T }

func (n noSQL) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	n.t.Error("Exec was called")
	return pgconn.CommandTag{}, errors.ErrUnsupported
}

func (n noSQL) Query(context.Context, string, ...any) (pgx.Rows, error) {
	n.t.Error("Query was called")
	return nil, errors.ErrUnsupported
}

func (n noSQL) QueryRow(context.Context, string, ...any) pgx.Row {
	n.t.Error("QueryRow was called")
	return nil
}

func (n noSQL) Begin(context.Context) (pgx.Tx, error) {
	n.t.Error("Begin was called")
	return nil, errors.ErrUnsupported
}
