package shardpub

import (
	"cmp"
	stdsql "database/sql"
	_ "embed"
	"errors"

	"github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/suisha-go/suisha/kiroku"
)

//go:embed sql/publish_append.sql
var publishAppendSQL string

//go:embed sql/publish_select.sql
var publishSelectSQL string

// SQLSchemaConfig configures [NewSQLSchema]. Its options mean what those of
// [PublisherConfig] do.
type SQLSchemaConfig struct {
	// Key returns the partition key of a message. Defaults to KeyFromMetadata.
	Key KeyFunc
	// Marshaler makes events of messages. Defaults to DefaultMarshaler with
	// Payload.
	Marshaler Marshaler
	// Payload is an option of the default Marshaler. Defaults to PayloadJSON.
	Payload PayloadCodec
	// EventID chooses the ids of events. Defaults to a new UUIDv7 per event.
	EventID EventIDFunc
}

// Validate reports every option that cannot be worked with, joined; each is a
// [*ConfigError]. [NewSQLSchema] cannot, so every publish does.
func (c SQLSchemaConfig) Validate() error {
	v := validation{of: "SQLSchemaConfig."}
	v.payload(c.Payload, c.Marshaler)
	return v.err()
}

// sqlSchema implements watermill-sql's SchemaAdapter over the event store.
type sqlSchema struct {
	envelope envelope
	invalid  error
}

// NewSQLSchema returns the adapter with which watermill-sql's own Publisher
// appends to the event store, inside the caller's *sql.Tx if that is what it is
// given:
//
//	tx, err := db.BeginTx(ctx, nil) // db from pgx's stdlib
//	pub, err := sql.NewPublisher(tx, sql.PublisherConfig{SchemaAdapter: shardpub.NewSQLSchema(cfg)}, logger)
//	err = pub.Publish("orders", msg)
//	err = tx.Commit()
//
// One call is one statement and appends everything or fails: also when a stream
// is deleted or is not at the version that [MetadataExpectedVersion] says, for
// which see [IsSQLConflict]. As always in PostgreSQL, the failure aborts the
// caller's transaction. Errors of messages and topics are those of
// [Publisher.Publish] and come before any SQL; watermill-sql itself refuses
// topics with other characters than letters, digits and -$:._.
//
// watermill-sql v3 publishes without the message's context, so nothing but the
// server's lock_timeout and statement_timeout bounds the call: set them in the
// transaction. The append locks the whole log until the transaction ends, so
// publish last in it, once. The driver must be pgx's stdlib; lib/pq does not take
// the arguments.
//
// There is nothing to initialize (leave AutoInitializeSchema false; shardpub.Migrate
// makes the schema) and nothing to subscribe to: watermill-sql's Subscriber would
// log an error that says so at every poll. Use [NewSubscriber].
//
// The adapter is safe for concurrent use.
func NewSQLSchema(cfg SQLSchemaConfig) sql.SchemaAdapter {
	return sqlSchema{envelope: newEnvelope(cfg.Key, cfg.Marshaler, cfg.Payload, cfg.EventID), invalid: cfg.Validate()}
}

// InsertQuery returns the one statement that appends the messages.
func (s sqlSchema) InsertQuery(topic string, msgs message.Messages) (sql.Query, error) {
	if s.invalid != nil {
		return sql.Query{}, s.invalid
	}
	batches, err := s.envelope.batches(topic, msgs)
	if err != nil {
		return sql.Query{}, err
	}
	var a appendArgs
	for place, b := range batches {
		if err := a.add(int64(place+1), b); err != nil {
			return sql.Query{}, err
		}
	}
	return sql.Query{Query: publishAppendSQL, Args: a.list()}, nil
}

// SelectQuery returns a statement that fails and says why.
func (sqlSchema) SelectQuery(string, string, sql.OffsetsAdapter) sql.Query {
	return sql.Query{Query: publishSelectSQL}
}

// UnmarshalMessage fails with [ErrSQLSubscriber].
func (sqlSchema) UnmarshalMessage(sql.Scanner) (sql.Row, error) { return sql.Row{}, ErrSQLSubscriber }

// SchemaInitializingQueries returns none.
func (sqlSchema) SchemaInitializingQueries(string) []sql.Query { return nil }

// SubscribeIsolationLevel is never used: there is no subscribing.
func (sqlSchema) SubscribeIsolationLevel() stdsql.IsolationLevel { return stdsql.LevelReadCommitted }

// appendArgs are the arguments of publish_append.sql, column by column.
type appendArgs struct {
	names, expected []string
	counts          []int64

	streams                                          []int64
	ids, types, causations, correlations, data, meta []string
}

func (a *appendArgs) add(place int64, b batch) error {
	a.names = append(a.names, b.stream)
	a.expected = append(a.expected, cmp.Or(b.expected, expectAny))
	a.counts = append(a.counts, int64(len(b.events)))
	for i, e := range b.events {
		if field, err := checkEvent(e); err != nil {
			return &kiroku.InvalidEventError{Stream: b.stream, Index: i, Field: field, Err: err}
		}
		id := e.ID
		if id == uuid.Nil {
			var err error
			if id, err = uuid.NewV7(); err != nil {
				return err
			}
		}
		a.streams = append(a.streams, place)
		a.ids = append(a.ids, id.String())
		a.types = append(a.types, e.Type)
		a.causations = append(a.causations, optionalUUID(e.CausationID))
		a.correlations = append(a.correlations, optionalUUID(e.CorrelationID))
		a.data = append(a.data, string(e.Data))
		a.meta = append(a.meta, string(e.Metadata))
	}
	return nil
}

var errEventType = errors.New("is missing or no text")

// checkEvent finds what kiroku.Append would refuse: another Marshaler may have
// made the event.
func checkEvent(e kiroku.Event) (field string, err error) {
	if e.Type == "" || !storableText(e.Type) {
		return "Type", errEventType
	}
	if err := kiroku.CheckJSON(e.Data); err != nil {
		return "Data", err
	}
	if len(e.Metadata) > 0 {
		return "Metadata", kiroku.CheckJSON(e.Metadata)
	}
	return "", nil
}

func (a *appendArgs) list() []any {
	return []any{
		a.names, a.expected, a.counts,
		a.streams, a.ids, a.types, a.causations, a.correlations, a.data, a.meta,
	}
}

func optionalUUID(id uuid.NullUUID) string {
	if !id.Valid {
		return ""
	}
	return id.UUID.String()
}
