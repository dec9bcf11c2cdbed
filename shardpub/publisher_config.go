package shardpub

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/suisha-go/suisha/kiroku"
)

// Executor is what a [Publisher] appends on: a *pgxpool.Pool, a *pgx.Conn, or a
// pgx.Tx, with which the append is part of the caller's transaction.
type Executor interface {
	kiroku.DB
	Begin(ctx context.Context) (pgx.Tx, error)
}

// PublisherConfig configures a [Publisher]. The zero value of every option is
// its default; none is required.
type PublisherConfig struct {
	// Key returns the partition key of a message: messages of one topic and key
	// are one stream, named topic + "-" + key, and are handled in order. With no
	// key ("") the message goes to the one stream that is named like the topic:
	// total order, and no parallelism. It must be safe for concurrent use.
	//
	// Defaults to KeyFromMetadata: the metadata MetadataKey.
	Key KeyFunc

	// Marshaler makes events of messages.
	//
	// Defaults to DefaultMarshaler with Payload.
	Marshaler Marshaler

	// Payload turns payloads into JSON. It is an option of the default Marshaler
	// and cannot be set beside another one.
	//
	// Defaults to PayloadJSON.
	Payload PayloadCodec

	// EventID chooses the ids of events, which are unique in the store.
	// IdempotentEventID makes publishing idempotent per topic and message UUID.
	//
	// Defaults to a new UUIDv7 per event.
	EventID EventIDFunc

	// LockTimeout is how long an append waits for another transaction that holds
	// a lock on one of its streams, or on the log itself, which every append locks
	// until its transaction ends. Afterwards the call fails, with those that share
	// its statement, and nothing is appended. In whole milliseconds.
	//
	// Over a *pgxpool.Pool it costs nothing. In a caller's pgx.Tx the append runs
	// behind a savepoint, so that the transaction survives the timeout, and the
	// setting is put back afterwards; on a *pgx.Conn it runs in a transaction of
	// its own: three round trips more.
	//
	// Defaults to none: the server's lock_timeout applies.
	LockTimeout time.Duration

	// DisableGroupCommit gives each call over a *pgxpool.Pool a statement and a
	// commit of its own, however many there are at the same time. Every append
	// locks the whole log until its commit is on disk, so many are then slower
	// than one. Choose it where calls must not share the fate of a connection.
	//
	// It changes nothing on a *pgx.Conn or a pgx.Tx, where nothing is shared.
	DisableGroupCommit bool

	// OnPublished is called after each successful call with messages, before
	// Publish returns, with one entry per stream in the order of their names. In a
	// caller's pgx.Tx nothing is committed yet. It must be safe for concurrent use
	// and must not close the Publisher.
	OnPublished func(ctx context.Context, topic string, r []kiroku.Appended)
}

// Validate reports every option that cannot be worked with, joined; each is a
// [*ConfigError].
func (c PublisherConfig) Validate() error {
	v := validation{of: "PublisherConfig."}
	v.payload(c.Payload, c.Marshaler)
	v.check(c.LockTimeout == 0 || c.LockTimeout >= time.Millisecond, "LockTimeout", c.LockTimeout, "choose 0 for none, or at least 1 ms")
	return v.err()
}

func (v *validation) payload(c PayloadCodec, m Marshaler) {
	v.check(m == nil || c == nil, "Payload", c, "set it in the Marshaler: it is an option of the default one")
}
