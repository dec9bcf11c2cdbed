package kiroku

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// AllStreams names the log of everything. It is not a stream: nothing can be
// appended to it.
const AllStreams = "$all"

// Channel is what kiroku's append triggers notify. It holds a dot, so LISTEN
// needs it quoted.
const Channel = "kiroku.events"

// MaxStreamName is the longest stream name kiroku takes, in bytes of UTF-8.
const MaxStreamName = 512

// Position is an event's place in [AllStreams]. Positions are strictly
// increasing and become visible in order; compare them, never compute with them.
type Position int64

// DB is what statements run on: a *pgxpool.Pool, a *pgx.Conn or a pgx.Tx.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Event is an event to append.
type Event struct {
	// ID must be unique in the store. Zero: a new UUIDv7. Give it yourself to
	// append again safely after an unknown outcome.
	ID uuid.UUID
	// Type is what kind of event it is. Required.
	Type string
	// Data is the payload, as JSON that PostgreSQL's jsonb takes ([CheckJSON]).
	// Required.
	Data json.RawMessage
	// Metadata is a JSON value beside the payload; nil stores SQL NULL.
	Metadata json.RawMessage
	// CausationID and CorrelationID are optional.
	CausationID, CorrelationID uuid.NullUUID
}

// RecordedEvent is an event as the store holds it.
type RecordedEvent struct {
	ID       uuid.UUID
	Type     string
	StreamID int64
	// Version is the event's number in its own stream, from 1.
	Version int64
	// Position is zero where the read does not know it (reads of one stream).
	Position                   Position
	Data                       []byte
	Metadata                   []byte // nil when there is none
	CausationID, CorrelationID uuid.NullUUID
	RecordedAt                 time.Time
}

// Key is one entry of [AllStreams] without its event.
type Key struct {
	Position Position
	StreamID int64
	Version  int64
	EventID  uuid.UUID
}

// Stream is what the store knows of a stream for ever: none of it changes.
type Stream struct {
	ID       int64
	Name     string
	Category string
	// Hash is PostgreSQL's hashtextextended of the decimal id, seed 0. It is
	// only ever evaluated by the server.
	Hash int64
}

// Bucket tells which of n consumer-group members the stream belongs to.
func (s Stream) Bucket(n int) int { return BucketOf(s.Hash, n) }

// BucketOf folds a stream's hash to [0, n), as kiroku's own statements do. n must
// be at least 1.
func BucketOf(hash int64, n int) int {
	m := int64(n)
	return int(((hash % m) + m) % m)
}

// CategoryOf is the text before the first "-": kiroku's generated column.
func CategoryOf(stream string) string {
	category, _, _ := strings.Cut(stream, "-")
	return category
}
